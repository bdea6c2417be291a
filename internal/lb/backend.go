// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// MaxWeight is the largest weight of a backend (as in OpenStack Octavia).
const MaxWeight = 256

// MaxConnections is the largest limit of a backend's connections.
const MaxConnections = 1<<31 - 1

// WholeShare is the denominator of Backend.Share.
const WholeShare = 16

// MAC is an Ethernet address. The zero MAC means "not given".
type MAC [6]byte

// String returns the address as six colon-separated hexadecimal bytes.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// IsZero reports whether the address is not given.
func (m MAC) IsZero() bool { return m == MAC{} }

// MarshalText writes the address as String does.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a 48-bit unicast Ethernet address.
func (m *MAC) UnmarshalText(text []byte) error {
	hw, err := net.ParseMAC(string(text))
	if err != nil || len(hw) != len(m) {
		return fmt.Errorf("bad MAC address %q: want six hexadecimal bytes such as 02:00:00:00:00:01", text)
	}
	if hw[0]&1 != 0 || MAC(hw) == (MAC{}) {
		return fmt.Errorf("bad MAC address %q: not a unicast address", text)
	}
	*m = MAC(hw)
	return nil
}

// BackendID names a backend within its service: its address and port.
type BackendID = netip.AddrPort

// Backend is one real server of a service.
type Backend struct {
	// Address is the server's address; never IPv4-mapped, without zone.
	Address netip.Addr `json:"address"`
	// Port is the server's port. In modes that don't translate it equals the service's port.
	Port uint16 `json:"port"`
	// MonitorPort is where health checks probe the backend; 0 is the check's port.
	MonitorPort uint16 `json:"monitorPort,omitzero"`
	// MonitorAddress is probed in place of the backend, by the node's own routes in all modes;
	// never IPv4-mapped, without zone. Without one probes take the path of clients' packets.
	MonitorAddress netip.Addr `json:"monitorAddress,omitzero"`
	// Weight is the backend's relative share of new flows, 0 to MaxWeight; 0 gets none. The
	// store sets it to 0 for drained backends, and for backends that count as unhealthy until
	// their first probe.
	Weight int `json:"weight"`
	// Backup is set if the backend gets new flows only while no other backend of the service
	// can: the store sets its Weight to 0 at other times, so that existing flows stay.
	Backup bool `json:"backup,omitempty"`
	// MaxConnections is the number of connections from which on the backend gets no new ones;
	// 0 is unlimited.
	MaxConnections int `json:"maxConnections,omitzero"`
	// TunnelEnd is the address of the backend's tunnel end point in the modes VXLAN and Geneve;
	// not in others.
	TunnelEnd netip.Addr `json:"tunnelEnd,omitzero"`
	// Node is the backend's node in mode DSR: packets are forwarded to it if it is directly
	// connected, else translated as in mode NAT. Without one the backend runs on this node.
	Node netip.Addr `json:"node,omitzero"`
	// Outside is set if the backend, in mode DSR, runs on no participating node: packets are
	// translated as in mode NAT. It has no Node.
	Outside bool `json:"outside,omitempty"`
	// MAC overrides the neighbour table for the backend's next hop. In the modes VXLAN and
	// Geneve it is the backend's own address within its segment, and required.
	MAC MAC `json:"mac,omitzero"`
	// Segment overrides the backend's segment: a VLAN, or in the modes VXLAN and Geneve one of
	// their type.
	Segment Segment `json:"segment,omitzero"`
	// ServerID is the server's ID in QUIC connection IDs, with AffinityQUIC. Without one only
	// the five-tuple is used.
	ServerID ServerID `json:"serverID,omitempty"`
	// Down is set if the server is unhealthy: it gets no new flows and loses its existing
	// ones. Only the store sets it; for servers without new TCP flows only if they
	// don't respond at all.
	Down bool `json:"down,omitempty"`
	// Drained is set if an operator drained the server; its Weight is 0 then. Only the store
	// sets it.
	Drained bool `json:"drained,omitempty"`
	// Ending is set if the server ends: it keeps its flows, gets new ones only if its Weight isn't 0,
	// and doesn't exist any more once it has left the service.
	Ending bool `json:"ending,omitempty"`
	// Share is the part of its weight that a backend in slow start gets, in sixteenths: 1 to
	// 15, or 0 for the whole. Only the store sets it.
	Share int `json:"share,omitempty"`
}

// Own reports whether the backend, in mode DSR, runs on this node.
func (b Backend) Own() bool { return !b.Node.IsValid() && !b.Outside }

// ID returns the backend's name within its service.
func (b Backend) ID() BackendID { return netip.AddrPortFrom(b.Address, b.Port) }

// SortBackends returns backends in the order of their IDs: the same slice if they are in order.
func SortBackends(backends []Backend) []Backend {
	byID := func(a, b Backend) int { return a.ID().Compare(b.ID()) }
	if slices.IsSortedFunc(backends, byID) {
		return backends
	}
	return slices.SortedFunc(slices.Values(backends), byID)
}

// FindBackend returns the index of the backend with an ID among sorted ones.
func FindBackend(sorted []Backend, id BackendID) (at int, found bool) {
	return slices.BinarySearchFunc(sorted, id, func(b Backend, id BackendID) int { return b.ID().Compare(id) })
}

// checkBackends checks backends and finds duplicates.
func (s *Service) checkBackends(f *findings) {
	first := make(map[BackendID]int, len(s.Backends))
	for i, b := range s.Backends {
		add := func(field string, err error) {
			if err != nil {
				f.add(fmt.Sprintf("backends[%d].%s", i, field), err)
			}
		}
		address := s.checkBackendAddress(b.Address)
		if j, taken := first[b.ID()]; taken && address == nil {
			address = fmt.Errorf("%s is also backends[%d]", b.ID(), j)
		} else if !taken {
			first[b.ID()] = i
		}
		add("address", address)
		add("port", s.checkBackendPort(b.Port))
		add("monitorAddress", s.checkMonitorAddress(b.MonitorAddress))
		add("node", s.checkNode(b.Node))
		add("outside", s.checkOutside(b))
		add("weight", checkRange(b.Weight, 0, MaxWeight))
		add("maxConnections", checkRange(b.MaxConnections, 0, MaxConnections))
		b.Segment.check(add, "segment")
		if s.Forward.Overlay() != SegmentUnset {
			s.checkBehindTunnel(add, b)
		} else {
			s.checkBeforeTunnel(add, b)
		}
	}
}

// checkBackendAddress also rejects the VIP, which would be a forwarding loop.
func (s *Service) checkBackendAddress(a netip.Addr) error {
	if err := CheckAddress(a); err != nil {
		return err
	}
	if a == s.Address {
		return fmt.Errorf("%s is the VIP itself", a)
	}
	if s.Forward.Translates() && s.Address.IsValid() && a.Is4() != s.Address.Is4() {
		return fmt.Errorf("%s is not of the VIP's family: %s translates within IPv4 or IPv6", a, s.Forward)
	}
	return nil
}

// checkMonitorAddress also rejects the VIP, at which any backend would answer.
func (s *Service) checkMonitorAddress(a netip.Addr) error {
	switch a {
	case netip.Addr{}:
		return nil
	case s.Address:
		return fmt.Errorf("%s is the VIP itself", a)
	}
	return CheckAddress(a)
}

// checkNode checks the node. Its family may differ from the VIP's: only its link-layer address
// is used.
func (s *Service) checkNode(node netip.Addr) error {
	switch {
	case !node.IsValid() || s.Forward == 0:
		return nil
	case s.Forward != DSR:
		return fmt.Errorf("only with dsr: %s forwards no packets to nodes", s.Forward)
	case node == s.Address:
		return fmt.Errorf("%s is the VIP itself", node)
	}
	return CheckAddress(node)
}

// checkOutside checks whether a backend may be outside.
func (s *Service) checkOutside(b Backend) error {
	switch {
	case !b.Outside || s.Forward == 0:
		return nil
	case s.Forward != DSR:
		return fmt.Errorf("only with dsr, this service has %s", s.Forward)
	case b.Node.IsValid():
		return fmt.Errorf("not with node, which is %s", b.Node)
	}
	return nil
}

// checkBehindTunnel checks a backend in a VXLAN or Geneve segment.
func (s *Service) checkBehindTunnel(add func(field string, err error), b Backend) {
	switch {
	case !b.TunnelEnd.IsValid():
		add("tunnelEnd", fmt.Errorf("missing: %s needs the backend's tunnel end point", s.Forward))
	case b.TunnelEnd == s.Address && !s.Segment.Overlay():
		add("tunnelEnd", fmt.Errorf("%s is the VIP itself", b.TunnelEnd))
	default:
		add("tunnelEnd", CheckAddress(b.TunnelEnd))
	}
	if b.MAC.IsZero() {
		add("mac", fmt.Errorf("missing: %s needs the backend's own address within its segment", s.Forward))
	}
	switch want := s.Forward.Overlay(); {
	case b.Segment.Type != SegmentUnset && b.Segment.Type != want:
		add("segment.type", fmt.Errorf("%s delivers in segments of type %s, not %s", s.Forward, want, b.Segment.Type))
	case s.SegmentOf(b) == Segment{}:
		add("segment", fmt.Errorf("missing: the service is in no %s segment, so the backend's has to be given", want))
	}
}

// checkBeforeTunnel rejects fields for VXLAN and Geneve in other modes.
func (s *Service) checkBeforeTunnel(add func(field string, err error), b Backend) {
	if s.Forward == 0 {
		return // reported elsewhere
	}
	if b.TunnelEnd.IsValid() {
		add("tunnelEnd", fmt.Errorf("not with %s: only with vxlan and geneve", s.Forward))
	}
	if b.Segment.Overlay() {
		add("segment.type", fmt.Errorf("%s delivers in no %s segments: want none or vlan", s.Forward, b.Segment.Type))
	}
}

// checkBackendPort ignores errors of the service's port, which are reported elsewhere.
func (s *Service) checkBackendPort(port uint16) error {
	if s.Port == 0 {
		return nil
	}
	if err := checkPort(port); err != nil {
		return err
	}
	if s.Forward != 0 && !s.Forward.Translates() && port != s.Port {
		return fmt.Errorf("%d differs from the service's port %d, which %s doesn't translate", port, s.Port, s.Forward)
	}
	return nil
}
