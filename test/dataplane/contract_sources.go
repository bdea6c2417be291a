// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// list returns the prefixes that hold the client's address, one for each
// length.
func list(client netip.Addr, lengths ...int) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, length := range lengths {
		prefixes = append(prefixes, netip.PrefixFrom(client, length).Masked())
	}
	return prefixes
}

// sources gives a service one list after the other, and takes the last away.
func sources(s *suite) {
	for _, vip := range []lb.VIP{vip(1), vip6(1)} {
		one, other := client(vip, 0).Addr(), client(vip, 255).Addr()
		full := one.BitLen()
		for _, allowance := range []lb.Sources{
			{Deny: list(one, 0)},
			{Deny: list(one, full)},
			{Allow: list(one, full)},
			{Allow: list(one, full), Deny: list(one, full)},
			{Allow: list(one, 0), Deny: list(one, full-1)},
			{Allow: list(one, full, full-8), Deny: list(one, full-1, 0)},
			{Allow: list(other, full-8), Deny: list(other, full-1, full-9)},
			{},
		} {
			svc := s.service(vip, 1, 1, 1)
			svc.Sources = allowance
			if p := s.update(svc); p.InUse() != 3 {
				s.Errorf("%s: %d backends in use", vip, p.InUse())
			}
			for i := range 256 {
				s.wantAllowed(vip, client(vip, i), Allows(allowance, client(vip, i).Addr()))
			}
		}
	}
}

func sourcesApart(s *suite) {
	one, other := s.service(vip(1), 1, 1), s.service(vip(2), 1, 1)
	who := client(one.VIP, 1)
	one.Sources.Deny = list(who.Addr(), 32)
	s.update(one)
	s.update(other)
	s.wantAllowed(one.VIP, who, false)
	s.wantAllowed(other.VIP, who, true)
	s.must(s.dp.Delete(s.Context(), one.VIP))
	s.wantAllowed(other.VIP, who, true)
	one.Sources = lb.Sources{}
	s.update(one)
	s.wantAllowed(one.VIP, who, true)
}

func (s *suite) wantAllowed(vip lb.VIP, client netip.AddrPort, want bool) {
	s.Helper()
	if _, forwarded := s.probe(vip, client); forwarded != want {
		s.Errorf("%s: the packet of %s is forwarded: %t, want %t", vip, client, forwarded, want)
	}
}
