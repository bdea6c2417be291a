// SPDX-License-Identifier: Apache-2.0

package session

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

// Open is what a peer's OPEN message contains (RFC 4271 §4.2).
type Open struct {
	ASN      uint32
	RouterID netip.Addr
	// HoldTime is the peer's proposal.
	HoldTime time.Duration
	// IPv4 and IPv6 are set for the families that it accepts, IPv4OverIPv6 if it
	// accepts IPv4 prefixes with IPv6 next hops (RFC 8950).
	IPv4, IPv6, IPv4OverIPv6 bool
	// GracefulRestart is set if it keeps routes over a restart (RFC 4724).
	GracefulRestart bool

	longASN bool // ASNs have 32 bits (RFC 6793)
}

// The flags of the graceful restart capability (RFC 4724 §3).
const (
	restartState    = 0x8  // of the four bits before the time
	forwardingState = 0x80 // of a family
)

// parse is the library's parser. A panic in it is an error.
func parse(message []byte, options *wire.MarshallingOption) (m *wire.BGPMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("malformed message: %v", r)
		}
	}()
	return wire.ParseBGPMessage(message, options)
}

// readOpen reads an OPEN message.
func readOpen(m *wire.BGPOpen) *Open {
	o := &Open{ASN: uint32(m.MyAS), RouterID: m.ID, HoldTime: time.Duration(m.HoldTime) * time.Second}
	multiprotocol := false
	for _, c := range capabilities(m) {
		switch c := c.(type) {
		case *wire.CapMultiProtocol:
			multiprotocol = true
			o.IPv4 = o.IPv4 || c.CapValue == wire.RF_IPv4_UC
			o.IPv6 = o.IPv6 || c.CapValue == wire.RF_IPv6_UC
		case *wire.CapFourOctetASNumber:
			o.ASN, o.longASN = c.CapValue, true
		case *wire.CapGracefulRestart:
			o.GracefulRestart = true
		case *wire.CapExtendedNexthop:
			for _, t := range c.Tuples {
				if t.NLRIAFI == wire.AFI_IP && t.NLRISAFI == uint16(wire.SAFI_UNICAST) && t.NexthopAFI == wire.AFI_IP6 {
					o.IPv4OverIPv6 = true
				}
			}
		}
	}
	if !multiprotocol { // RFC 4760 §8: IPv4 only
		o.IPv4 = true
	}
	return o
}

// capabilities are those of all optional parameters.
func capabilities(m *wire.BGPOpen) (all []wire.ParameterCapabilityInterface) {
	for _, p := range m.OptParams {
		if p, ok := p.(*wire.OptionParameterCapability); ok {
			all = append(all, p.Capability...)
		}
	}
	return all
}

// rewriteOpen changes the library's OPEN. The library ties the F bit ("forwarding
// state preserved") to its own restart, and then holds routes back until all peers
// have sent theirs. Here the kernel forwards packets whatever happens to sessions, and
// no routes are learnt: the F bit is always set, and the R bit in the first session
// after a start. The library has no hold time of 0 either. Without a restart time, routers
// of a reflector don't get the capability, which the library needs for its End-of-RIB.
func rewriteOpen(message []byte, restarted bool, peer *bgp.Peer) ([]byte, error) {
	m, err := parse(message, nil)
	if err != nil {
		return nil, err
	}
	open := m.Body.(*wire.BGPOpen)
	if peer.HoldTime == 0 {
		open.HoldTime = 0
	}
	if peer.RestartTime == 0 {
		open.OptParams = slices.DeleteFunc(open.OptParams, func(o wire.OptionParameterInterface) bool {
			p, ok := o.(*wire.OptionParameterCapability)
			if ok {
				p.Capability = slices.DeleteFunc(p.Capability, func(c wire.ParameterCapabilityInterface) bool {
					return c.Code() == wire.BGP_CAP_GRACEFUL_RESTART
				})
			}
			return ok && len(p.Capability) == 0
		})
	}
	for _, c := range capabilities(open) {
		c, ok := c.(*wire.CapGracefulRestart)
		if !ok {
			continue
		}
		if restarted {
			c.Flags |= restartState
		}
		for _, t := range c.Tuples {
			t.Flags |= forwardingState
		}
	}
	m.Header.Len = 0 // computed again
	return m.Serialize()
}

// addGracefulRestart adds the capability without families to a valid OPEN: the library then
// sends End-of-RIB (RFC 4724 §3). An OPEN without room stays as it is.
func addGracefulRestart(message []byte) []byte {
	const size = headerSize + 9 // where the size of the parameters is
	added := []byte{wire.BGP_OPT_CAPABILITY, 4, byte(wire.BGP_CAP_GRACEFUL_RESTART), 2, 0, 0}
	if int(message[size])+len(added) >= 255 { // RFC 9072
		return message
	}
	message = append(message, added...)
	message[size] += byte(len(added))
	binary.BigEndian.PutUint16(message[16:], uint16(len(message)))
	return message
}
