// SPDX-License-Identifier: Apache-2.0

package fib

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// sizeofMember is that of struct nexthop_grp (linux/nexthop.h).
	sizeofMember = unix.SizeofNexthopGrp
	// attributeNexthop is RTA_NH_ID (linux/rtnetlink.h, Linux 5.3).
	attributeNexthop = 30
	// typeMask leaves an attribute's type without its flags (linux/netlink.h).
	typeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
)

// message is one word of the kernel about a nexthop object or a route.
type message struct {
	gone bool
	// object is the number of the nexthop object, which has members if it is a
	// group and is the hop if not; 0 if the message is about a route.
	object  uint32
	hop     Hop
	members []member

	key   routeKey
	route route
}

// parse reads an rtnetlink message. ok is false if it tells nothing about
// nexthop objects or routes through gateways in the main table.
func parse(kind uint16, data []byte) (m message, ok bool, err error) {
	switch kind {
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		m.gone = kind == unix.RTM_DELNEXTHOP
		ok, err = m.parseObject(data)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		m.gone = kind == unix.RTM_DELROUTE
		ok, err = m.parseRoute(data)
	}
	return m, ok, err
}

func (m *message) parseObject(data []byte) (bool, error) {
	attributes, err := attributesBehind(data, unix.SizeofNhmsg)
	if err != nil {
		return false, fmt.Errorf("nexthop message: %w", err)
	}
	m.hop.Weight = 1
	for _, a := range attributes {
		switch a.Attr.Type & typeMask {
		case unix.NHA_ID:
			m.object = number(a.Value)
		case unix.NHA_GATEWAY:
			m.hop.Gateway, _ = netip.AddrFromSlice(a.Value)
		case unix.NHA_GROUP:
			m.members = []member{}
			for g := a.Value; len(g) >= sizeofMember; g = g[sizeofMember:] {
				// The weight is written less one.
				m.members = append(m.members, member{object: number(g), weight: int(g[4]) + 1})
			}
		}
	}
	return m.object != 0, nil
}

func (m *message) parseRoute(data []byte) (bool, error) {
	attributes, err := attributesBehind(data, unix.SizeofRtMsg)
	if err != nil {
		return false, fmt.Errorf("route message: %w", err)
	}
	head := nl.DeserializeRtMsg(data)
	table, destination, single := uint32(head.Table), netip.Addr{}, Hop{Weight: 1}
	for _, a := range attributes {
		switch a.Attr.Type & typeMask {
		case unix.RTA_TABLE:
			table = number(a.Value)
		case unix.RTA_DST:
			destination, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_PRIORITY:
			m.key.metric = number(a.Value)
		case attributeNexthop:
			m.route.object = number(a.Value)
		case unix.RTA_GATEWAY, unix.RTA_VIA:
			single.Gateway = gateway(a)
		case unix.RTA_MULTIPATH:
			if m.route.hops, err = parseMultipath(a.Value); err != nil {
				return false, err
			}
		}
	}
	if single.Gateway.IsValid() {
		m.route.hops = []Hop{single}
	}
	// A default route has no destination: nobody asks for it.
	m.key.prefix = netip.PrefixFrom(destination, int(head.Dst_len))
	return table == unix.RT_TABLE_MAIN && head.Type == unix.RTN_UNICAST && destination.IsValid(), nil
}

// parseMultipath reads a list of struct rtnexthop, each with attributes of its
// own.
func parseMultipath(data []byte) ([]Hop, error) {
	var hops []Hop
	for len(data) >= unix.SizeofRtNexthop {
		head := nl.DeserializeRtNexthop(data)
		length := int(head.RtNexthop.Len)
		if length < unix.SizeofRtNexthop || length > len(data) {
			return nil, fmt.Errorf("route message: next hop of %d bytes in %d", length, len(data))
		}
		attributes, err := attributesBehind(data[:length], unix.SizeofRtNexthop)
		if err != nil {
			return nil, fmt.Errorf("route message: next hop: %w", err)
		}
		hop := Hop{Weight: int(head.Hops) + 1}
		for _, a := range attributes {
			switch a.Attr.Type & typeMask {
			case unix.RTA_GATEWAY, unix.RTA_VIA:
				hop.Gateway = gateway(a)
			}
		}
		hops = append(hops, hop)
		data = data[min(len(data), (length+3)&^3):]
	}
	return hops, nil
}

// gateway reads RTA_GATEWAY, an address, or RTA_VIA, where a family stands before
// it: an IPv6 gateway of an IPv4 route.
func gateway(a syscall.NetlinkRouteAttr) netip.Addr {
	const sizeofFamily = 2
	value := a.Value
	if a.Attr.Type&typeMask == unix.RTA_VIA && len(value) > sizeofFamily {
		value = value[sizeofFamily:]
	}
	address, _ := netip.AddrFromSlice(value)
	return address
}

// attributesBehind reads the attributes that follow a message's head.
func attributesBehind(data []byte, head int) ([]syscall.NetlinkRouteAttr, error) {
	if len(data) < head {
		return nil, fmt.Errorf("%d bytes, want at least %d", len(data), head)
	}
	return nl.ParseRouteAttr(data[head:])
}

// number reads 32 bits in the machine's order; what is shorter is 0.
func number(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}
