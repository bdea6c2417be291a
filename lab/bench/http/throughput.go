// SPDX-License-Identifier: Apache-2.0

package http

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"fairlead.io/fairlead/lab/bench"
)

// The links, in place of the dissertation's of 1 Gbit/s, carry less than this machine can serve.
const (
	fullLink   = "4mbit"   // to the client and to the balancer
	serverLink = "250kbit" // a sixteenth
	// rising is the number of servers whose links carry less than the balancer's in any way.
	rising = 8
	// saturated is a number of servers whose links carry more than the client's.
	saturated        = 24
	most             = 40 // figure 5.8
	throughputRounds = 3
	clientsPerServer = 4
)

func serverNumbers(quick bool) []int {
	if quick {
		return []int{rising}
	}
	return []int{1, 2, 4, rising, 16, saturated, most}
}

// limited are the ways whose throughput is measured.
func limited() []way {
	measured := []string{l2dsr, ipip, nat, iptables, nginx}
	return slices.DeleteFunc(direct(), func(w way) bool { return !slices.Contains(measured, w.name) })
}

func throughputCell(way string, servers int) string {
	return fmt.Sprintf("throughput, %s, %d servers", way, servers)
}

// throughput adds the group that compares ways with a number of servers.
func (p *planned) throughput(number int) error {
	one := testbed{servers: number, connections: clientsPerServer * number, shaped: true}
	return p.group(fmt.Sprintf("throughput with %d servers", number), throughputRounds, limited(), one,
		func(way string) string { return throughputCell(way, number) })
}

// shape limits the links to the client and to the balancer, and the servers' in both directions.
// The balancer sends as much as it receives, so its sending needs no limit.
func (t *testbed) shape(ctx context.Context) error {
	for _, h := range t.State().Hosts {
		host, port, rate := switchHost, h.Name, fullLink
		switch partOf(&h) {
		case client:
			host, port = routerHost, device
		case balancers:
		case servers:
			rate = serverLink
			if err := bench.Shape(ctx, t.Lab, h.Name, device, rate); err != nil {
				return err
			}
		default:
			continue
		}
		if err := bench.Shape(ctx, t.Lab, host, port, rate); err != nil {
			return err
		}
	}
	return nil
}

// reportThroughput adds the throughput by servers, with ratios and verdicts.
func reportThroughput(r *bench.Report, found bench.Found[finding]) error {
	of := func(way string, servers int) bench.Runs {
		return runs(found[throughputCell(way, servers)], func(f finding) float64 { return f.Rate })
	}
	for _, w := range limited() {
		var servers, rates bench.Runs // in the rising part of the curve
		for _, n := range serverNumbers(false) {
			rate := of(w.name, n)
			r.Add("throughput", "requests/s", rate, map[string]string{"way": w.name, "servers": strconv.Itoa(n)})
			if n <= rising && rate != nil {
				servers, rates = append(servers, float64(n)), append(rates, rate.Median())
			}
		}
		if len(rates) < 3 {
			continue
		}
		name := w.name + "_servers_correlation"
		r.Ratios[name] = bench.Correlation(servers, rates)
		r.Judge(fmt.Sprintf("%s: correlation of the requests a second and the number of servers, up to %d", w.name, rising),
			"dissertation, figure 5.2", bench.AtLeast(0.99), r.Ratios[name])
	}
	if err := r.Compare(
		ratio("ipip_over_nat_throughput", of(ipip, most), of(nat, most), "ipip over nat", "dissertation, figure 5.8", bench.AtLeast(1.4)),
		ratio("nat_over_iptables_throughput", of(nat, most), of(iptables, most), "nat over iptables", "dissertation, figure 5.5", bench.AtLeast(0.95)),
		ratio("nginx_over_nat_throughput", of(nginx, most), of(nat, most), "nginx over nat", bench.Documented, bench.AtMost(1.05)),
		ratio("nat_saturated", of(nat, most), of(nat, saturated), "nat over nat with 24 servers", "dissertation, figure 5.2", bench.AtMost(1.05)),
	); err != nil {
		return err
	}
	reportGain(r, found)
	return nil
}

// ratio compares requests a second where links are full.
func ratio(name string, a, b bench.Runs, sides, source string, target bench.Target) bench.Comparison {
	return bench.Comparison{
		Name: name, A: a, B: b, Source: source, Target: target,
		Claim: fmt.Sprintf("requests a second with %d servers, over shaped links: %s", most, sides),
	}
}

// reportGain compares the gain by direct return with the bytes of a request and its answer: both
// pass the balancer's link with NAT, only the answer passes the client's.
func reportGain(r *bench.Report, found bench.Found[finding]) {
	cells, measured := found[throughputCell(nat, most)], r.Ratios["ipip_over_nat_throughput"]
	gain := runs(cells, func(f finding) float64 { return (f.Sent + f.Received) / f.Received })
	r.Add("request_bytes", "bytes", runs(cells, func(f finding) float64 { return f.Sent }), nil)
	r.Add("answer_bytes", "bytes", runs(cells, func(f finding) float64 { return f.Received }), nil)
	if measured == 0 || gain == nil {
		return
	}
	r.Ratios["ipip_over_nat_by_bytes"] = gain.Median()
	r.Judge("gain by direct return, ipip over nat, over the one that bytes predict", bench.Documented, bench.AtLeast(0.95), measured/gain.Median())
}
