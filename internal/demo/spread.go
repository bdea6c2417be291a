// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"text/tabwriter"

	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// packets counts forwarded packets by balancer and server.
type packets map[string]map[string]uint64

// forwarded reads the counters of all balancers.
func (s stage) forwarded(ctx context.Context) (packets, error) {
	names := map[netip.Addr]string{}
	for _, h := range s.lab.State().Hosts {
		if h.Role == netlab.Server {
			for _, a := range h.Addresses {
				names[a] = h.Name
			}
		}
	}
	all := packets{}
	for _, h := range s.balancers() {
		text, err := observe.Dial(h.Socket).Backends(ctx, "")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		var backends []observe.Backend
		if err := json.Unmarshal(text, &backends); err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		all[h.Name] = map[string]uint64{}
		for _, b := range backends {
			all[h.Name][names[b.Address]] += b.Packets
		}
	}
	return all, nil
}

// minus returns what was counted since an earlier reading.
func (p packets) minus(before packets) packets {
	for balancer, row := range p {
		for server := range row {
			row[server] -= before[balancer][server]
		}
	}
	return p
}

// total is all of them.
func (p packets) total() (sum uint64) {
	for _, row := range p {
		for _, n := range row {
			sum += n
		}
	}
	return sum
}

// print writes a table: a line a balancer, a column a server.
func (p packets) print(out io.Writer) {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	columns := map[string]bool{}
	for _, row := range p {
		for server := range row {
			columns[server] = true
		}
	}
	names := slices.Sorted(maps.Keys(columns))
	fmt.Fprint(t, "\t")
	for _, server := range names {
		fmt.Fprintf(t, "%s\t", server)
	}
	fmt.Fprintln(t, "total\t")
	for _, balancer := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(t, "%s\t", balancer)
		total := uint64(0)
		for _, server := range names {
			fmt.Fprintf(t, "%d\t", p[balancer][server])
			total += p[balancer][server]
		}
		fmt.Fprintf(t, "%d\t\n", total)
	}
	_ = t.Flush() // the writer is a terminal or a buffer
}

// others counts packets that came to a balancer and were to no VIP: those of BGP
// and BFD, and all that servers would answer if answers came this way.
func (s stage) others(ctx context.Context) (uint64, error) {
	seen := uint64(0)
	for _, h := range s.balancers() {
		text, err := observe.Dial(h.Socket).Status(ctx)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", h.Name, err)
		}
		var status observe.Status
		if err := json.Unmarshal(text, &status); err != nil {
			return 0, fmt.Errorf("%s: %w", h.Name, err)
		}
		for _, e := range status.Exits {
			if e.Name == "pass_not_vip" {
				seen += e.Packets
			}
		}
	}
	return seen, nil
}
