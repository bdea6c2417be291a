// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
	"fairlead.io/fairlead/internal/lb"
)

// resolver finds how backends are reached; *nexthop.Resolver is one.
type resolver interface {
	Follow(vip lb.VIP, targets []nexthop.Target) []nexthop.Result
	Forget(vip lb.VIP)
	Ports(bridge int) []nexthop.Port
	Changed() <-chan lb.VIP
	Close() error
}

func target(svc *lb.Service, b lb.Backend) nexthop.Target {
	if svc.Forward.Overlay() != lb.SegmentUnset {
		return nexthop.Target{Address: b.TunnelEnd}
	}
	if b.Node.IsValid() {
		return nexthop.Target{Address: b.Address, Relay: b.Node, MAC: b.MAC, Handover: true}
	}
	return nexthop.Target{Address: b.Address, OnLink: svc.Forward == lb.L2DSR, MAC: b.MAC, Handover: svc.Forward.Translates()}
}

// remote is the far end of packets' way: of a tunnel or, if packets are translated,
// the backend itself, whoever does it.
func remote(svc *lb.Service, b lb.Backend) netip.Addr {
	if svc.Forward.Translates() {
		return b.Address
	}
	return target(svc, b).Address
}

// vlan is the id under which packets for b are sent; 0 is untagged. What the
// backend says counts most, then a VLAN device on the route; without either an
// L2 packet stays in its VLAN and a tunnel runs untagged.
func vlan(svc *lb.Service, b lb.Backend, hop nexthop.Hop) uint16 {
	switch {
	case b.Segment.Type == lb.SegmentVLAN || b.Segment.Type == lb.SegmentNone:
		return uint16(b.Segment.ID)
	case hop.VLAN != 0:
		return hop.VLAN
	case (svc.Forward == lb.L2DSR || hop.Relay) && svc.Segment.Type == lb.SegmentVLAN:
		return uint16(svc.Segment.ID)
	}
	return 0
}

// entry is a backend in the slot that was old until now.
func entry(svc *lb.Service, b lb.Backend, hop nexthop.Hop, old slot) slot {
	e := slot{
		balancerBackend: balancerBackend{
			Destination: hop.Destination,
			Source:      hop.Source,
			Vlan:        vlan(svc, b, hop),
			Mtu:         uint16(min(hop.MTU, 0xffff)),
			Ifindex:     uint32(hop.Index),
			Stats:       old.Stats,
			Generation:  old.Generation,
			Forward:     uint8(slices.Index(forwards(), svc.Forward)),
			Remote:      remote(svc, b).As16(),
		},
		detail: balancerBackendDetail{
			Address: b.Address.As16(),
			Port:    wirePort(b.Port),
			Mac:     b.MAC,
			Segment: svc.SegmentOf(b).ID,
			Before:  old.detail.Before,
		},
		backend: b, newFlowsBefore: old.newFlowsBefore,
	}
	if hop.Index != 0 && !b.Down {
		e.Flags = uint8(balancerBackendFlagBACKEND_USABLE)
	}
	if clientIdle(svc) > 0 && b.Weight > 0 {
		e.Flags |= uint8(balancerBackendFlagBACKEND_NEW_FLOWS)
	}
	if hop.Relay {
		e.Flags |= uint8(balancerBackendFlagBACKEND_RELAY)
	}
	if svc.Forward == lb.DNAT && b.Own() {
		e.Flags |= uint8(balancerBackendFlagBACKEND_OWN)
	}
	if svc.Membership.Is(b) {
		e.Flags |= uint8(balancerBackendFlagBACKEND_SELF)
	}
	if hop.Handover {
		e.Flags |= uint8(balancerBackendFlagBACKEND_HANDOVER)
	}
	if hop.Local.IsValid() {
		e.Local = hop.Local.As16()
	}
	return e
}

// hop is how the slot's backend was last reached.
func (s *slot) hop() nexthop.Hop {
	h := nexthop.Hop{
		Interface:   strconv.Itoa(int(s.Ifindex)),
		Index:       int(s.Ifindex),
		Source:      s.Source,
		Destination: s.Destination,
		VLAN:        s.Vlan,
		MTU:         int(s.Mtu),
		Handover:    s.has(balancerBackendFlagBACKEND_HANDOVER),
		Relay:       s.has(balancerBackendFlagBACKEND_RELAY),
	}
	if dev, err := net.InterfaceByIndex(h.Index); err == nil {
		h.Interface = dev.Name
	}
	if s.Local != ([16]byte{}) {
		h.Local = unmapped(s.Local)
	}
	return h
}

// forwards are the modes by the program's numbers for them.
func forwards() []lb.Forward {
	return []lb.Forward{
		balancerForwardFORWARD_L2DSR:  lb.L2DSR,
		balancerForwardFORWARD_IPIP:   lb.IPIP,
		balancerForwardFORWARD_GUE:    lb.GUE,
		balancerForwardFORWARD_VXLAN:  lb.VXLAN,
		balancerForwardFORWARD_GENEVE: lb.Geneve,
		balancerForwardFORWARD_NAT:    lb.NAT,
		balancerForwardFORWARD_DNAT:   lb.DNAT,
	}
}

// describe says for people where packets for b are sent: for example "eth0
// 02:00:00:00:00:01 vlan 100", or with " to 10.0.2.21, vxlan 5001" behind it, or
// " to node 10.0.2.12" if they are relayed.
func describe(svc *lb.Service, b lb.Backend, hop nexthop.Hop) string {
	if svc.Membership.Is(b) {
		return thisNode
	}
	hop.VLAN = vlan(svc, b, hop)
	if segment := svc.SegmentOf(b); segment.Tagged() {
		return fmt.Sprintf("%s to %s, %s", hop, b.TunnelEnd, segment)
	}
	if hop.Relay {
		return fmt.Sprintf("%s to node %s", hop, b.Node)
	}
	return hop.String()
}

// wirePort puts a port into network byte order, as it lies in a packet.
func wirePort(port uint16) uint16 { return port<<8 | port>>8 }

func unmapped(address [16]byte) netip.Addr { return netip.AddrFrom16(address).Unmap() }
