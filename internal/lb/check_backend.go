// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"net/netip"
)

// checkBackends finds what is wrong with single backends, and those that are
// given twice.
func (s *Service) checkBackends(f *findings) {
	first := make(map[BackendID]int, len(s.Backends))
	for i, b := range s.Backends {
		path := func(field string) string { return fmt.Sprintf("backends[%d].%s", i, field) }
		address := s.checkBackendAddress(b.Address)
		if j, taken := first[b.ID()]; taken && address == nil {
			address = fmt.Errorf("%s is also backends[%d]", b.ID(), j)
		} else if !taken {
			first[b.ID()] = i
		}
		if address != nil {
			f.add(path("address"), address)
		}
		if err := s.checkBackendPort(b.Port); err != nil {
			f.add(path("port"), err)
		}
		if err := s.checkNode(b.Node); err != nil {
			f.add(path("node"), err)
		}
		if err := s.checkOutside(b); err != nil {
			f.add(path("outside"), err)
		}
		if b.Weight < 0 || b.Weight > MaxWeight {
			f.add(path("weight"), OutOfRange(b.Weight, 0, MaxWeight))
		}
		if b.Segment != (Segment{}) {
			b.Segment.check(f, path("segment"))
		}
		if s.Forward.Overlay() != SegmentUnset {
			s.checkBehindTunnel(f, b, path)
		} else {
			s.checkBeforeTunnel(f, b, path)
		}
	}
}

// checkBackendAddress also refuses the VIP as its own backend: its packets
// would come back for ever.
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

// checkNode looks at the node to which packets are relayed. Its family may be
// another than the VIP's: only its link-layer address is used.
func (s *Service) checkNode(node netip.Addr) error {
	switch {
	case !node.IsValid() || s.Forward == 0:
		return nil
	case s.Forward != DNAT:
		return fmt.Errorf("only with dnat: %s relays nothing to nodes", s.Forward)
	case node == s.Address:
		return fmt.Errorf("%s is the VIP itself", node)
	}
	return CheckAddress(node)
}

// checkOutside looks at whether a backend may be on no node.
func (s *Service) checkOutside(b Backend) error {
	switch {
	case !b.Outside || s.Forward == 0:
		return nil
	case s.Forward != DNAT:
		return fmt.Errorf("only with dnat: %s does alike with all backends", s.Forward)
	case b.Node.IsValid():
		return fmt.Errorf("on no node, though %s is its node", b.Node)
	}
	return nil
}

// checkBehindTunnel finds what is wrong with how a backend is reached within a
// VXLAN or Geneve segment.
func (s *Service) checkBehindTunnel(f *findings, b Backend, path func(string) string) {
	switch {
	case !b.TunnelEnd.IsValid():
		f.add(path("tunnelEnd"), fmt.Errorf("missing: %s needs the tunnel end point behind which the backend is", s.Forward))
	case b.TunnelEnd == s.Address && !s.Segment.Overlay():
		f.add(path("tunnelEnd"), fmt.Errorf("%s is the VIP itself", b.TunnelEnd))
	default:
		f.add(path("tunnelEnd"), CheckAddress(b.TunnelEnd))
	}
	if b.MAC.IsZero() {
		f.add(path("mac"), fmt.Errorf("missing: %s needs the backend's own address within its segment", s.Forward))
	}
	switch want := s.Forward.Overlay(); {
	case b.Segment.Type != SegmentUnset && b.Segment.Type != want:
		f.add(path("segment.type"), fmt.Errorf("%s delivers in segments of type %s, not %s", s.Forward, want, b.Segment.Type))
	case s.SegmentOf(b) == Segment{}:
		f.add(path("segment"), fmt.Errorf("missing: the service is in no %s segment, so the backend's has to be given", want))
	}
}

// checkBeforeTunnel refuses what only VXLAN and Geneve need.
func (s *Service) checkBeforeTunnel(f *findings, b Backend, path func(string) string) {
	if s.Forward == 0 {
		return // which has been said already
	}
	if b.TunnelEnd.IsValid() {
		f.add(path("tunnelEnd"), fmt.Errorf("%s has none: only vxlan and geneve have", s.Forward))
	}
	if b.Segment.Overlay() {
		f.add(path("segment.type"), fmt.Errorf("%s delivers in no %s segments: want none or vlan", s.Forward, b.Segment.Type))
	}
}

// checkBackendPort is silent where the service's own port is wrong, which has
// been said already.
func (s *Service) checkBackendPort(port uint16) error {
	if s.Port == 0 {
		return nil
	}
	if err := checkPort(port); err != nil {
		return err
	}
	if s.Forward != 0 && s.Forward.DSR() && port != s.Port {
		return fmt.Errorf("%d differs from the service's port %d, which %s leaves as it is", port, s.Port, s.Forward)
	}
	return nil
}
