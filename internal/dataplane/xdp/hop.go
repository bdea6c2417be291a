// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

// Resolver finds how backends are reached; *nexthop.Resolver is one.
type Resolver interface {
	Follow(vip lb.VIP, targets []nexthop.Target) []nexthop.Result
	Forget(vip lb.VIP)
	Ports(bridge int) []nexthop.Port
	Notify(changed func(lb.VIP))
	Interfaces() <-chan struct{}
	Close() error
}

func target(svc *lb.Service, b lb.Backend) nexthop.Target {
	if svc.Forward.Overlay() != lb.SegmentUnset {
		return nexthop.Target{Address: b.TunnelEnd}
	}
	if b.Node.IsValid() {
		return nexthop.Target{Address: b.Address, Relay: new(b.Node), MAC: b.MAC, Handover: true}
	}
	return nexthop.Target{Address: b.Address, OnLink: svc.Forward == lb.L2DSR, MAC: b.MAC, Handover: svc.Forward.Translates()}
}

// remote is the far end of the packets' path: of a tunnel or, if packets are
// translated here or on another node, the backend itself.
func remote(svc *lb.Service, b lb.Backend) netip.Addr {
	if svc.Forward.Translates() {
		return b.Address
	}
	return target(svc, b).Address
}

// vlan is the id under which packets for b are sent; 0 is untagged. The backend's
// own VLAN takes precedence, then a VLAN device on the route; without either an L2
// packet stays in its VLAN and a tunnel runs untagged.
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

// entry returns a backend's slot, without the fields that slot.after sets.
func entry(svc *lb.Service, b lb.Backend, hop nexthop.Hop) slot {
	e := slot{
		Slot: table.Slot{Backend: table.Backend{
			BalancerBackend: table.BalancerBackend{Destination: hop.Destination},
			BalancerEgress: table.BalancerEgress{
				Source:  hop.Source,
				Vlan:    vlan(svc, b, hop),
				Mtu:     uint16(min(max(hop.MTU-overhead(svc.Forward, remote(svc, b)), 0), 0xffff)),
				Ifindex: uint32(hop.Index),
				Forward: uint8(slices.Index(forwards(), svc.Forward)),
			},
			Remote: remote(svc, b).As16(),
		}, Detail: table.BalancerBackendDetail{
			Address: b.Address.As16(),
			Port:    table.WirePort(b.Port),
			Mac:     b.MAC,
			Segment: svc.SegmentOf(b).ID,
		}},
	}
	e.Flags = uint8(when(hop.Index != 0 && !b.Down, table.BalancerBackendFlagBACKEND_USABLE) |
		when(b.Weight > 0, table.BalancerBackendFlagBACKEND_NEW_FLOWS) |
		when(hop.Relay, table.BalancerBackendFlagBACKEND_RELAY) |
		when(svc.Forward == lb.DSR && b.Own() || hop.ToStack(), table.BalancerBackendFlagBACKEND_KEEP_SOURCE) |
		when(svc.Membership.Is(b), table.BalancerBackendFlagBACKEND_LOCAL) |
		when(hop.Handover, table.BalancerBackendFlagBACKEND_HANDOVER))
	if hop.Local.IsValid() {
		e.Local = hop.Local.As16()
	}
	return e
}

// overhead is how many bytes a tunnel to that end point adds to a client's packet.
func overhead(mode lb.Forward, end netip.Addr) int {
	const udp, gue, segment = 8, 4, 8 + 14 // of VXLAN or Geneve, and an Ethernet header
	ip := 40
	if end.Is4() {
		ip = 20
	}
	switch mode {
	case lb.IPIP:
		return ip
	case lb.GUE:
		return ip + udp + gue
	case lb.VXLAN, lb.Geneve:
		return ip + udp + segment
	default:
		return 0
	}
}

// mode is how packets get to the slot's backend; 0 if another release wrote an unknown one.
func (s *slot) mode() lb.Forward {
	if known := forwards(); int(s.Forward) < len(known) {
		return known[s.Forward]
	}
	return 0
}

// pathMTU is the MTU of the path to the backend, tunnel headers included.
func (s *slot) pathMTU() int {
	return int(s.Mtu) + overhead(s.mode(), table.Unmapped(s.Remote))
}

// hop is how the slot's backend was last reached.
func (s *slot) hop() nexthop.Hop {
	h := nexthop.Hop{
		Interface:   strconv.Itoa(int(s.Ifindex)),
		Index:       int(s.Ifindex),
		Source:      s.Source,
		Destination: s.Destination,
		VLAN:        s.Vlan,
		MTU:         s.pathMTU(),
		Handover:    s.has(table.BalancerBackendFlagBACKEND_HANDOVER),
		Relay:       s.has(table.BalancerBackendFlagBACKEND_RELAY),
	}
	if dev, err := net.InterfaceByIndex(h.Index); err == nil {
		h.Interface = dev.Name
	}
	if s.Local != ([16]byte{}) {
		h.Local = table.Unmapped(s.Local)
	}
	return h
}

// forwards are the modes by the program's numbers for them.
func forwards() []lb.Forward {
	return []lb.Forward{
		table.BalancerForwardFORWARD_L2DSR:  lb.L2DSR,
		table.BalancerForwardFORWARD_IPIP:   lb.IPIP,
		table.BalancerForwardFORWARD_GUE:    lb.GUE,
		table.BalancerForwardFORWARD_VXLAN:  lb.VXLAN,
		table.BalancerForwardFORWARD_GENEVE: lb.Geneve,
		table.BalancerForwardFORWARD_NAT:    lb.NAT,
		table.BalancerForwardFORWARD_DSR:    lb.DSR,
	}
}

// describe returns a text of where packets for b are sent: for example "eth0
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
