// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"text/tabwriter"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
)

// packets counts forwarded packets by balancer and server.
type packets map[string]map[string]uint64

// forwarded reads the counters of all balancers.
func (s show) forwarded(ctx context.Context) (packets, error) {
	names := map[netip.Addr]string{}
	for _, h := range s.lab.Hosts(netlab.Server) {
		for _, a := range h.Addresses {
			names[a] = h.Name
		}
	}
	all := packets{}
	for _, h := range s.lab.Hosts(netlab.Balancer) {
		backends, err := netlab.Decode[[]observe.Backend](control.Dial(h.Socket).Backends(ctx, ""))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		all[h.Name] = map[string]uint64{}
		for _, b := range backends {
			all[h.Name][names[b.Address]] += b.Packets
		}
	}
	return all, nil
}

// minus subtracts an earlier reading.
func (p packets) minus(before packets) packets {
	for balancer, row := range p {
		for server := range row {
			row[server] -= before[balancer][server]
		}
	}
	return p
}

// print writes a table with a line for each balancer and a column for each server.
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

// passed counts packets for other hosts in the balancers' kernels, forwarded or
// refused: servers' answers would be such packets. Packets of BGP and BFD aren't,
// and clients' requests don't reach the kernel.
func (s show) passed(ctx context.Context) (sum uint64, err error) {
	for _, h := range s.lab.Hosts(netlab.Balancer) {
		text, err := s.lab.Run(ctx, h.Name, "nstat", "--ignore", "--zeros", "--noupdate", "--json")
		counters, err := netlab.Decode[struct{ Kernel map[string]uint64 }]([]byte(text), err)
		if err != nil {
			return 0, err
		}
		for _, name := range []string{"IpInAddrErrors", "IpForwDatagrams", "Ip6InAddrErrors", "Ip6InNoRoutes", "Ip6OutForwDatagrams"} {
			n, known := counters.Kernel[name]
			if !known {
				return 0, fmt.Errorf("%s: the kernel has no counter %s", h.Name, name)
			}
			sum += n
		}
	}
	return sum, nil
}
