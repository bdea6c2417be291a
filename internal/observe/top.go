// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Top is the load of the data plane: rates of the last full second, the highest
// first.
type Top struct {
	Node string    `json:"node"`
	Time time.Time `json:"time"`
	// Total is the rate of all services.
	Total Rate `json:"total"`
	// BGP summarises the announcements.
	BGP      RouteSummary `json:"bgp"`
	Services []Service    `json:"services"`
	Backends []Backend    `json:"backends"`
	// Exits are those that packets took; drops are among them, by reason.
	Exits []Exit `json:"exits"`
}

// Top has at most so many services and backends.
func (s *Snapshot) Top(rows int) Top {
	status := s.Status()
	t := Top{
		Node: status.Node, Time: time.Now(), BGP: status.BGP, Services: slices.Clone(s.Services()),
		Backends: s.AllBackends(), Exits: []Exit{},
	}
	for _, s := range t.Services {
		t.Total.add(s.Rate)
	}
	for _, e := range status.Exits {
		if e.PacketsPerSecond > 0 {
			t.Exits = append(t.Exits, e)
		}
	}
	// Rows with equal rates stay in the order of names and addresses.
	slices.SortStableFunc(t.Services, func(a, b Service) int { return b.compare(a.Rate) })
	slices.SortStableFunc(t.Backends, func(a, b Backend) int { return b.compare(a.Rate) })
	slices.SortStableFunc(t.Exits, func(a, b Exit) int { return cmp.Compare(b.PacketsPerSecond, a.PacketsPerSecond) })
	t.Services = t.Services[:min(len(t.Services), rows)]
	t.Backends = t.Backends[:min(len(t.Backends), rows)]
	return t
}

// compare orders rates by packets, then bytes.
func (r Rate) compare(o Rate) int {
	return cmp.Or(cmp.Compare(r.PacketsPerSecond, o.PacketsPerSecond), cmp.Compare(r.BytesPerSecond, o.BytesPerSecond))
}

// FormatTop has a table each of services, backends and exits.
func FormatTop(t Top) string {
	text := fmt.Sprintf("%s  %s  %s packets/s  %s bits/s\n", t.Node, t.Time.Format(time.TimeOnly),
		human(t.Total.PacketsPerSecond), bits(t.Total.BytesPerSecond))
	if t.BGP.Enabled {
		text += fmt.Sprintf("%s  %s\n", t.BGP.label(), t.BGP)
	}
	services := table(func(w io.Writer) {
		fmt.Fprintln(w, "SERVICE\tVIP\tBACKENDS\tPACKETS/S\tBITS/S\tSTATUS")
		for _, s := range t.Services {
			fmt.Fprintf(w, "%s\t%s\t%d/%d\t%s\t%s\t%s\n", s.Name, s.VIP, s.BackendsInUse, s.Backends,
				human(s.PacketsPerSecond), bits(s.BytesPerSecond), s.Condition())
		}
	})
	backends := table(func(w io.Writer) {
		fmt.Fprintln(w, "SERVICE\tBACKEND\tSHARE\tPACKETS/S\tBITS/S")
		for _, b := range t.Backends {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", b.Service, netip.AddrPortFrom(b.Address, b.Port), percent(b.Share),
				human(b.PacketsPerSecond), bits(b.BytesPerSecond))
		}
	})
	exits := table(func(w io.Writer) {
		fmt.Fprintln(w, "EXIT\tPACKETS/S")
		for _, e := range t.Exits {
			fmt.Fprintf(w, "%s\t%s\n", e.Name, human(e.PacketsPerSecond))
		}
	})
	return strings.Join([]string{text, services, backends, exits}, "\n")
}
