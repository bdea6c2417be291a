// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// Commands and attributes of linux/ip_vs.h.
const (
	commandNewService    = 1
	commandSetService    = 2
	commandDeleteService = 3
	commandGetService    = 4
	commandNewServer     = 5
	commandSetServer     = 6
	commandDeleteServer  = 7
	commandGetServer     = 8
	commandZero          = 16

	attrService = 1
	attrServer  = 2

	attrServiceFamily    = 1
	attrServiceProtocol  = 2
	attrServiceAddress   = 3
	attrServicePort      = 4
	attrServiceMark      = 5
	attrServiceScheduler = 6
	attrServiceFlags     = 7
	attrServiceTimeout   = 8
	attrServiceNetmask   = 9
	attrServiceStats     = 12 // 64-bit

	attrServerAddress     = 1
	attrServerPort        = 2
	attrServerMethod      = 3
	attrServerWeight      = 4
	attrServerUpper       = 5
	attrServerLower       = 6
	attrServerActive      = 7
	attrServerInactive    = 8
	attrServerFamily      = 11
	attrServerStats       = 12 // 64-bit
	attrServerTunnelType  = 13
	attrServerTunnelPort  = 14
	attrServerTunnelFlags = 15

	attrStatsConnections = 1
	attrStatsPackets     = 2 // from clients
	attrStatsBytes       = 4
)

// flagHashed is set by the kernel; servers' methods have further bits too.
const (
	flagHashed = 0x0002
	methodMask = 0x0007
)

// familyName is the name of the generic netlink family; the kernel loads module ip_vs for
// it.
const familyName = "IPVS"

// MissingError reports a feature that the kernel lacks.
type MissingError struct {
	// Module is the kernel module, for example "ip_vs".
	Module string
	Err    error
}

// Error returns for example "the kernel has no IPVS: module ip_vs is missing".
func (e *MissingError) Error() string {
	return fmt.Sprintf("kernel module %s is missing (modprobe %s): %v", e.Module, e.Module, e.Err)
}

// Unwrap returns the kernel's error.
func (e *MissingError) Unwrap() error { return e.Err }

// conn is a connection to IPVS in one network namespace.
type conn struct {
	*genetlink.Conn
	family genetlink.Family
}

// dial connects in the calling thread's network namespace.
func dial() (*conn, error) {
	c, err := genetlink.Dial(nil)
	if err != nil {
		return nil, err
	}
	family, err := c.GetFamily(familyName)
	if errors.Is(err, os.ErrNotExist) {
		err = &MissingError{Module: "ip_vs", Err: err}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &conn{c, family}, nil
}

// counted has the kernel's counters of an IPVS service or a server.
type counted struct{ connections, packets, bytes uint64 }

// liveVirtual and liveServer are as the kernel has them.
type (
	liveVirtual struct {
		virtual
		counted
	}
	liveServer struct {
		server
		counted
		// active are established TCP connections, inactive the others.
		active, inactive int
	}
)

// virtuals lists all IPVS services, also foreign ones.
func (c *conn) virtuals() ([]liveVirtual, error) {
	messages, err := c.execute(commandGetService, netlink.Dump, func(*netlink.AttributeEncoder) {})
	if err != nil {
		return nil, fmt.Errorf("list IPVS services: %w", err)
	}
	all := make([]liveVirtual, len(messages))
	for i, m := range messages {
		if err := decode(m.Data, attrService, all[i].decode); err != nil {
			return nil, fmt.Errorf("list IPVS services: %w", err)
		}
	}
	return all, nil
}

// virtual returns one IPVS service, nil if there is none.
func (c *conn) virtual(i id) (*liveVirtual, error) {
	messages, err := c.execute(commandGetService, 0, func(ae *netlink.AttributeEncoder) { ae.Nested(attrService, i.encode) })
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("get IPVS service %s: %d messages, %w", i, len(messages), err)
	}
	v := &liveVirtual{}
	return v, decode(messages[0].Data, attrService, v.decode)
}

// servers returns the servers of an IPVS service, sorted.
func (c *conn) servers(i id) ([]liveServer, error) {
	messages, err := c.execute(commandGetServer, netlink.Dump, func(ae *netlink.AttributeEncoder) { ae.Nested(attrService, i.encode) })
	if err != nil {
		return nil, fmt.Errorf("list servers of IPVS service %s: %w", i, err)
	}
	all := make([]liveServer, len(messages))
	for n, m := range messages {
		if err := decode(m.Data, attrServer, all[n].decode); err != nil {
			return nil, fmt.Errorf("list servers of IPVS service %s: %w", i, err)
		}
	}
	slices.SortFunc(all, func(a, b liveServer) int { return a.Compare(b.BackendID) })
	return all, nil
}

// change adds, sets or deletes an IPVS service.
func (c *conn) change(command uint8, v virtual) error {
	_, err := c.execute(command, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) { ae.Nested(attrService, v.encode) })
	if errors.Is(err, os.ErrNotExist) && command == commandNewService {
		err = &MissingError{Module: "ip_vs_" + v.scheduler, Err: err}
	}
	if err != nil {
		return fmt.Errorf("IPVS service %s: %w", v.id, err)
	}
	return nil
}

// changeServer adds, sets or deletes a server of an IPVS service.
func (c *conn) changeServer(command uint8, i id, s server) error {
	_, err := c.execute(command, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) {
		ae.Nested(attrService, i.encode)
		ae.Nested(attrServer, s.encode)
	})
	if err != nil {
		return fmt.Errorf("server %s of IPVS service %s: %w", s.BackendID, i, err)
	}
	return nil
}

func (c *conn) execute(command uint8, flags netlink.HeaderFlags, encode func(*netlink.AttributeEncoder)) ([]genetlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	encode(ae)
	data, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	request := genetlink.Message{Header: genetlink.Header{Command: command, Version: c.family.Version}, Data: data}
	return c.Execute(request, c.family.ID, netlink.Request|flags)
}

// String returns for example "tcp 10.1.1.1:80" or "firewall mark 1 (IPv4)".
func (i id) String() string {
	switch {
	case i.mark == 0:
		return lb.VIP{Address: i.address.Addr(), Port: i.address.Port(), Protocol: i.protocol}.String()
	case i.family == unix.AF_INET:
		return fmt.Sprintf("firewall mark %d (IPv4)", i.mark)
	default:
		return fmt.Sprintf("firewall mark %d (IPv6)", i.mark)
	}
}

func (i id) encode(ae *netlink.AttributeEncoder) error {
	ae.Uint16(attrServiceFamily, i.family)
	if i.mark != 0 {
		ae.Uint32(attrServiceMark, i.mark)
		return nil
	}
	ae.Uint16(attrServiceProtocol, uint16(i.protocol))
	ae.Bytes(attrServiceAddress, sixteen(i.address.Addr()))
	ae.Bytes(attrServicePort, wirePort(i.address.Port()))
	return nil
}

func (v virtual) encode(ae *netlink.AttributeEncoder) error {
	ae.String(attrServiceScheduler, v.scheduler)
	// struct ip_vs_flags: the flags, and a mask of those that are set.
	flags := binary.NativeEndian.AppendUint32(nil, v.flags)
	ae.Bytes(attrServiceFlags, binary.NativeEndian.AppendUint32(flags, math.MaxUint32))
	ae.Uint32(attrServiceTimeout, v.timeout)
	// Persistence is by whole addresses: a mask in IPv4, a prefix length in IPv6.
	netmask := uint32(math.MaxUint32)
	if v.family == unix.AF_INET6 {
		netmask = 128
	}
	ae.Uint32(attrServiceNetmask, netmask)
	return v.id.encode(ae)
}

func (s server) encode(ae *netlink.AttributeEncoder) error {
	ae.Bytes(attrServerAddress, sixteen(s.Addr()))
	ae.Bytes(attrServerPort, wirePort(s.Port()))
	ae.Uint16(attrServerFamily, familyOf(s.Addr()))
	ae.Uint32(attrServerMethod, s.method)
	ae.Uint32(attrServerWeight, s.weight)
	ae.Uint32(attrServerUpper, s.upper)
	ae.Uint32(attrServerLower, 0)
	ae.Uint8(attrServerTunnelType, s.tunnel)
	ae.Bytes(attrServerTunnelPort, wirePort(s.tunnelPort))
	ae.Uint16(attrServerTunnelFlags, s.tunnelFlags)
	return nil
}

// decode reads the nested attributes of a kind.
func decode(data []byte, kind uint16, read func(*netlink.AttributeDecoder) error) error {
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return err
	}
	for ad.Next() {
		if ad.Type() == kind {
			ad.Nested(read)
		}
	}
	return ad.Err()
}

func (v *liveVirtual) decode(ad *netlink.AttributeDecoder) error {
	var address []byte
	var port uint16
	for ad.Next() {
		switch ad.Type() {
		case attrServiceFamily:
			v.family = ad.Uint16()
		case attrServiceProtocol:
			v.protocol = lb.Protocol(ad.Uint16())
		case attrServiceAddress:
			address = ad.Bytes()
		case attrServicePort:
			port = hostPort(ad.Bytes())
		case attrServiceMark:
			v.mark = ad.Uint32()
		case attrServiceScheduler:
			v.scheduler = ad.String()
		case attrServiceFlags:
			if flags := ad.Bytes(); len(flags) >= 4 {
				v.flags = binary.NativeEndian.Uint32(flags) &^ flagHashed
			}
		case attrServiceTimeout:
			v.timeout = ad.Uint32()
		case attrServiceStats:
			ad.Nested(v.counted.decode)
		}
	}
	if v.mark == 0 {
		v.address = netip.AddrPortFrom(addressOf(v.family, address), port)
	}
	if v.flags&flagPersistent == 0 {
		v.timeout = 0 // the kernel's default is meaningless
	}
	return ad.Err()
}

func (s *liveServer) decode(ad *netlink.AttributeDecoder) error {
	var address []byte
	var port, family uint16
	for ad.Next() {
		switch ad.Type() {
		case attrServerAddress:
			address = ad.Bytes()
		case attrServerPort:
			port = hostPort(ad.Bytes())
		case attrServerFamily:
			family = ad.Uint16()
		case attrServerMethod:
			s.method = ad.Uint32() & methodMask
		case attrServerWeight:
			s.weight = ad.Uint32()
		case attrServerUpper:
			s.upper = ad.Uint32()
		case attrServerActive:
			s.active = int(ad.Uint32())
		case attrServerInactive:
			s.inactive = int(ad.Uint32())
		case attrServerStats:
			ad.Nested(s.counted.decode)
		case attrServerTunnelType:
			s.tunnel = ad.Uint8()
		case attrServerTunnelPort:
			s.tunnelPort = hostPort(ad.Bytes())
		case attrServerTunnelFlags:
			s.tunnelFlags = ad.Uint16()
		}
	}
	s.BackendID = netip.AddrPortFrom(addressOf(family, address), port)
	return ad.Err()
}

func (c *counted) decode(ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		switch ad.Type() {
		case attrStatsConnections:
			c.connections = ad.Uint64()
		case attrStatsPackets:
			c.packets = ad.Uint64()
		case attrStatsBytes:
			c.bytes = ad.Uint64()
		}
	}
	return ad.Err()
}

// sixteen is an address as union nf_inet_addr: IPv4 in the first four bytes.
func sixteen(a netip.Addr) []byte {
	b := make([]byte, 16)
	copy(b, a.AsSlice())
	return b
}

// addressOf reads a union nf_inet_addr.
func addressOf(family uint16, b []byte) netip.Addr {
	if family == unix.AF_INET && len(b) >= 4 {
		b = b[:4]
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func wirePort(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }

func hostPort(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}
