// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// maxInterfaceName fits IFNAMSIZ with its final zero.
const maxInterfaceName = 15

// problems returns errors in names, addresses and links, which depend on the size
// of a topology: no test brings the largest ones up. The kernel checks the rest in Up.
func (t *Topology) problems() error {
	var errs []error
	hosts, macs, links := map[string]bool{}, map[lb.MAC]bool{}, map[End]int{}
	for _, l := range t.Links {
		links[l.A]++
		links[l.B]++
	}
	for i := range t.Hosts {
		h := &t.Hosts[i]
		if hosts[h.Name] {
			errs = append(errs, fmt.Errorf("host %s: name used twice", h.Name))
		}
		hosts[h.Name] = true
		errs = append(errs, CheckName(h.Name), h.interfaceProblems(macs, links), h.routeProblems())
	}
	for end := range links {
		errs = append(errs, fmt.Errorf("link to %s: no such interface", end))
	}
	for _, r := range t.Learned {
		if !hosts[r.Host] {
			errs = append(errs, fmt.Errorf("learned route %s: no host %s", r.Prefix, r.Host))
		}
	}
	for _, p := range t.Probes {
		if !hosts[p.From] {
			errs = append(errs, fmt.Errorf("probe of %s: no host %s", p.Address, p.From))
		}
	}
	return errors.Join(errs...)
}

// interfaceProblems checks that interfaces have unique names and MAC addresses, and one link
// each, which it removes from links.
func (h *Host) interfaceProblems(macs map[lb.MAC]bool, links map[End]int) error {
	var errs []error
	names := map[string]bool{}
	for _, i := range h.Interfaces {
		end := End{h.Name, i.Name}
		if names[i.Name] || len(i.Name) > maxInterfaceName {
			errs = append(errs, fmt.Errorf("%s: the name is used twice, or too long", end))
		}
		if macs[i.MAC] {
			errs = append(errs, fmt.Errorf("%s: another interface has %s", end, i.MAC))
		}
		if links[end] != 1 {
			errs = append(errs, fmt.Errorf("%s: %d links, want 1", end, links[end]))
		}
		delete(links, end)
		names[i.Name], macs[i.MAC] = true, !i.MAC.IsZero()
	}
	return errors.Join(errs...)
}

// routeProblems checks that routes lead to networks, through gateways of their family.
func (h *Host) routeProblems() error {
	var errs []error
	for _, r := range h.Routes {
		other := func(g netip.Addr) bool { return g.Is4() != r.Destination.Addr().Is4() }
		if !r.Destination.IsValid() || r.Destination != r.Destination.Masked() || slices.ContainsFunc(r.Gateways, other) {
			errs = append(errs, fmt.Errorf("host %s: route %s: no network, or gateways %v of another family", h.Name, r.Destination, r.Gateways))
		}
	}
	return errors.Join(errs...)
}
