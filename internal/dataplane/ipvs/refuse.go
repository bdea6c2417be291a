// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"errors"
	"fmt"

	"fairlead.io/fairlead/internal/lb"
)

// Refuse returns everything in a service that IPVS can't do. Limits().Check has the rest.
func Refuse(s *lb.Service) []lb.FieldError {
	var found []lb.FieldError
	refuse := func(bad bool, path, format string, args ...any) {
		if bad {
			found = append(found, lb.FieldError{Path: path, Err: fmt.Errorf(format, args...)})
		}
	}
	refuse(s.Affinity == lb.AffinityQUIC, "affinity", "IPVS can't read QUIC connection IDs: want flow or client")
	byClient := s.Scheduler == lb.SchedulerMaglev || s.Scheduler == lb.SchedulerSH || s.AffinityTimeout != 0
	refuse(s.Affinity == lb.AffinityClient && !byClient, "affinity",
		"%s keeps a client's flows together only with an affinityTimeout; maglev and sh also without", s.Scheduler)
	refuse(s.Unannounced, "unannounced", "IPVS can't balance for other nodes")
	refuse(s.Membership.Self.IsValid() || len(s.Membership.Balancers) > 0, "membership", "with IPVS a node can't be balancer and backend at once")
	refuse(s.IdleTimeout != 0, "idleTimeout", "IPVS has one time-out for all services (ipvsadm --set)")
	refuse(len(s.Sources.Allow)+len(s.Sources.Deny) > 0, "sources", "IPVS has no access lists")
	refuse(s.Limits != lb.FlowLimits{}, "limits", "IPVS has no rate limits")
	for i, b := range s.Backends {
		path := fmt.Sprintf("backends[%d].", i)
		refuse(!b.MAC.IsZero(), path+"mac", "IPVS uses the kernel's neighbour table (ip neighbour)")
		refuse(s.Forward == lb.L2DSR && b.Address.Is4() != s.Address.Is4(), path+"address", "%s is not of the VIP's family, which IPVS needs with l2dsr", b.Address)
	}
	return found
}

// check returns why IPVS can't serve a service.
func check(s *lb.Service) error {
	for _, f := range append(Limits().Check(s), Refuse(s)...) {
		return fmt.Errorf("vip %s: %w", s.VIP, f)
	}
	return nil
}

// errMixed is why services can't have the same firewall mark.
var errMixed = errors.New("services with one firewall mark have to be alike")

// alike returns an error unless two services can be one IPVS service by firewall mark.
func alike(a, b *lb.Service) error {
	differ := func(what string, one, other any) error {
		return fmt.Errorf("firewall mark %d: %w: %s is %v of %s and %v of %s", a.FirewallMark, errMixed, what, one, a.VIP, other, b.VIP)
	}
	switch {
	case a.Forward != b.Forward:
		return differ("forward", a.Forward, b.Forward)
	case a.Scheduler != b.Scheduler:
		return differ("scheduler", a.Scheduler, b.Scheduler)
	case a.Affinity != b.Affinity:
		return differ("affinity", a.Affinity, b.Affinity)
	case a.AffinityTimeout != b.AffinityTimeout:
		return differ("affinityTimeout", a.AffinityTimeout, b.AffinityTimeout)
	case a.Port == b.Port:
		return nil
	}
	// Packets keep their ports, so there is nothing to translate.
	for _, s := range []*lb.Service{a, b} {
		for _, backend := range s.Backends {
			if backend.Port != s.Port {
				return differ("port", a.Port, b.Port)
			}
		}
	}
	return nil
}

// byVIP orders services.
func byVIP(a, b *lb.Service) int { return cmp.Compare(a.VIP.Compare(b.VIP), 0) }
