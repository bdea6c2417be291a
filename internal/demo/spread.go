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
