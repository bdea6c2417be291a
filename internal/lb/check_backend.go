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
		if b.Weight < 0 || b.Weight > MaxWeight {
			f.add(path("weight"), OutOfRange(b.Weight, 0, MaxWeight))
		}
		if b.Segment != (Segment{}) {
			b.Segment.check(f, path("segment"))
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
	return nil
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
