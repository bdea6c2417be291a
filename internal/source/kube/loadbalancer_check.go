// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
)

// PartProblem keeps a listener of a LoadBalancer, or a member of its pool, from being
// served: on any node.
type PartProblem struct {
	Listener, Pool string
	// Member is the member's address and port; empty if it is the listener that can't
	// be served.
	Member string
	Text   string
}

// CheckParts returns what is wrong with the parts of a LoadBalancer at an address, as
// the agents read them.
func CheckParts(b *v1alpha1.LoadBalancer, address netip.Addr) (problems []PartProblem) {
	for i, l := range b.Spec.Listeners {
		one := *b
		one.Spec.Listeners = b.Spec.Listeners[i : i+1]
		t := &translation{}
		var found []PartProblem
		t.listeners(&one, address, func(s lb.Service) { found = checkListener(s) })
		for _, text := range t.problems {
			found = append(found, PartProblem{Text: text})
		}
		for _, p := range found {
			p.Listener, p.Pool = l.Name, l.Pool
			problems = append(problems, p)
		}
	}
	return problems
}

// checkListener returns what is wrong with a listener's service, by members.
func checkListener(s lb.Service) (found []PartProblem) {
	for _, f := range s.Check() {
		p := PartProblem{Text: f.Error()}
		var at int
		if n, _ := fmt.Sscanf(f.Path, "backends[%d]", &at); n == 1 {
			member := s.Backends[at]
			p.Member = netip.AddrPortFrom(member.Address, member.Port).String()
			_, p.Text, _ = strings.Cut(p.Text, "]")
			p.Text = strings.TrimLeft(p.Text, ".: ")
		}
		found = append(found, p)
	}
	return found
}
