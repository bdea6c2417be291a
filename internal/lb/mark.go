// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"fmt"
)

// ErrMixedMark is why services can't have the same firewall mark.
var ErrMixedMark = errors.New("services with one firewall mark need equal settings")

// Alike returns an error unless a service and others of its firewall mark, which the data plane
// schedules as one, can have it. Services of another mark or family, or without one, don't matter.
func (s *Service) Alike(others ...Service) error {
	for i := range others {
		o := &others[i]
		if s.FirewallMark == 0 || o.FirewallMark != s.FirewallMark || o.Address.Is4() != s.Address.Is4() {
			continue
		}
		differ := func(what string, one, other any) error {
			return fmt.Errorf("firewall mark %d: %w: %s is %v of %s and %v of %s", s.FirewallMark, ErrMixedMark, what, one, s.VIP, other, o.VIP)
		}
		switch {
		case s.Forward != o.Forward:
			return differ("forward", s.Forward, o.Forward)
		case s.Scheduler != o.Scheduler:
			return differ("scheduler", s.Scheduler, o.Scheduler)
		case s.Affinity != o.Affinity:
			return differ("affinity", s.Affinity, o.Affinity)
		case s.AffinityTimeout != o.AffinityTimeout:
			return differ("affinityTimeout", s.AffinityTimeout, o.AffinityTimeout)
		case s.Port != o.Port && (s.translatesPorts() || o.translatesPorts()):
			return differ("port", s.Port, o.Port) // packets of a mark keep their ports
		}
	}
	return nil
}

// translatesPorts reports whether a backend has another port than the service.
func (s *Service) translatesPorts() bool {
	for i := range s.Backends {
		if s.Backends[i].Port != s.Port {
			return true
		}
	}
	return false
}
