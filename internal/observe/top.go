// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// Top is what the data plane is busy with: rates of the last full second, the
// highest first.
type Top struct {
	Node string    `json:"node"`
	Time time.Time `json:"time"`
	// Total is what all services forward.
	Total Rate `json:"total"`
	// BGP sums up what is announced.
	BGP      RouteCounts `json:"bgp"`
	Services []Service   `json:"services"`
	Backends []Backend   `json:"backends"`
	// Exits are those that packets took; drops are among them, by reason.
	Exits []Exit `json:"exits"`
}

func (s *Server) top(w http.ResponseWriter, r *http.Request) {
	rows := maxFlows
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if rows, err = limitOf(text); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	s.show(w, r, func(v view) (any, error) { return s.agent.top(v, rows), nil })
}

// top has at most so many services and backends.
func (a *Agent) top(v view, rows int) Top {
	status := a.status(v)
	t := Top{Node: a.Node, Time: time.Now(), BGP: status.BGP, Services: v.services(), Backends: v.backends(), Exits: []Exit{}}
	for _, s := range t.Services {
		t.Total.PacketsPerSecond += s.PacketsPerSecond
		t.Total.BytesPerSecond += s.BytesPerSecond
	}
	for _, e := range status.Exits {
		if e.PacketsPerSecond > 0 {
			t.Exits = append(t.Exits, e)
		}
	}
	// What is equal stays in the order of names and addresses.
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

// WriteTop prints rates for people.
func WriteTop(w io.Writer, t Top) error {
	fmt.Fprintf(w, "%s  %s  %s packets/s  %s bits/s\n", t.Node, t.Time.Format(time.TimeOnly),
		human(t.Total.PacketsPerSecond), bits(t.Total.BytesPerSecond))
	if t.BGP.Enabled {
		fmt.Fprintf(w, "bgp  %s\n", t.BGP)
	}
	fmt.Fprintln(w)
	err := writeTable(w, func(w io.Writer) {
		fmt.Fprintln(w, "SERVICE\tVIP\tBACKENDS\tPACKETS/S\tBITS/S\tSTATUS")
		for _, s := range t.Services {
			fmt.Fprintf(w, "%s\t%s\t%d/%d\t%s\t%s\t%s\n", s.Name, s.VIP, s.BackendsInUse, s.Backends,
				human(s.PacketsPerSecond), bits(s.BytesPerSecond), s.Condition())
		}
	})
	if err != nil {
		return err
	}
	err = writeTable(w, func(w io.Writer) {
		fmt.Fprintln(w, "\nSERVICE\tBACKEND\tSHARE\tPACKETS/S\tBITS/S")
		for _, b := range t.Backends {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", b.Service, netip.AddrPortFrom(b.Address, b.Port), percent(b.Share),
				human(b.PacketsPerSecond), bits(b.BytesPerSecond))
		}
	})
	if err != nil {
		return err
	}
	return writeTable(w, func(w io.Writer) {
		fmt.Fprintln(w, "\nEXIT\tPACKETS/S")
		for _, e := range t.Exits {
			fmt.Fprintf(w, "%s\t%s\n", e.Name, human(e.PacketsPerSecond))
		}
	})
}
