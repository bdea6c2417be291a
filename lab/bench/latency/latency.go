// SPDX-License-Identifier: Apache-2.0

// Package latency compares the latency of HTTP requests at constant rates over networks of
// containers (machine-zone's comparison for Kubernetes) and through balancers (figure 5.6 of the
// dissertation). Its client doesn't wait for an answer before it sends the next request.
// cmd/fairlab calls Run.
package latency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.io/fairlead/lab/bench"
)

// conditions are equal for all cells of a group.
type conditions struct {
	size    int    // of an answer, without header, in bytes
	percent int    // of the most requests a second
	of      string // whose most: the host network's, or each network's own
}

// small is the size of answers with which balancers are measured too.
const own, small = "own", 350

// plan returns all conditions.
func plan(quick bool) (sizes []int, all []conditions, rounds int) {
	sizes, rounds = []int{small, 4096}, 3
	percents := []int{10, 30, 50, 70, 90}
	if quick {
		sizes, rounds, percents = sizes[:1], 1, []int{30, 70}
	}
	for _, size := range sizes {
		for _, percent := range percents {
			all = append(all, conditions{size, percent, hostNetwork})
		}
	}
	return sizes, append(all, conditions{small, 87, own}, conditions{small, 98, own}), rounds
}

// cell is the name of a network's cell.
func (c conditions) cell(network string) string {
	return fmt.Sprintf("%d bytes, %d %% of %s, %s", c.size, c.percent, c.of, network)
}

// Run builds a lab for each network, measures for a time in each cell and round, and removes them.
func Run(ctx context.Context, cfg bench.Config, name string, length time.Duration) (*bench.Report, error) {
	sizes, all, rounds := plan(cfg.Quick)
	b := bench.Bench[found]{Name: "latency"}
	b.Report = func(r *bench.Report, found bench.Found[found]) (err error) {
		for _, c := range all {
			err = errors.Join(err, c.report(r, found))
		}
		return err
	}
	var testbeds []*testbed
	for _, n := range networks() {
		err := exec.Command("unshare", "-n", "sh", "-c", "ip link add v0 type veth && ip link add link v0 type "+n.device).Run()
		if _, failed := errors.AsType[*exec.ExitError](err); failed {
			cfg.Log("%s is left out: the kernel has no such device", n.name)
			continue
		}
		n.topology.Host(n.server).ServeSizes(n.port, 100_000_000, sizes...)
		testbeds = append(testbeds, &testbed{network: n, most: map[int]float64{}})
	}
	b.Remove = func(ctx context.Context) (err error) {
		for _, t := range testbeds {
			err = errors.Join(err, t.Down(ctx))
		}
		return err
	}
	for _, c := range all {
		g := bench.Group[found]{Name: c.cell("all"), Rounds: rounds}
		for _, t := range testbeds {
			if t.balancer && c.size != small || !t.balancer && c.of == own {
				continue
			}
			cell := bench.Cell[found]{Name: c.cell(t.name), Reference: t == testbeds[0], Programs: append(t.topology.Programs(), "iptables", "nstat")}
			cell.Setup = func(ctx context.Context) error { return t.build(ctx, cfg.Labs, name, c.size, length) }
			cell.Measure = func(ctx context.Context) (found, error) { return t.measure(ctx, cfg, c, testbeds[0], length) }
			g.Cells = append(g.Cells, cell)
		}
		b.Groups = append(b.Groups, g)
	}
	return bench.Run(ctx, cfg, b)
}

// found is a round's numbers by the name of a result, its unit and, if it has one, a label.
type found map[string]float64

const latency = "latency ms percentile="

// addPercentiles adds percentiles, as far as at least ten of the latencies are above.
func (f found) addPercentiles(latencies bench.Runs) {
	for _, p := range []float64{50, 90, 95, 99, 99.9, 99.99, 99.999} {
		if math.Round(float64(len(latencies))*(100-p)) >= 100*10 {
			f[latency+strconv.FormatFloat(p, 'g', -1, 64)] = latencies.Percentile(p)
		}
	}
}

// runs returns a number of all rounds.
func runs(rounds []found, key string) (all bench.Runs) {
	for _, f := range rounds {
		if v, ok := f[key]; ok {
			all = append(all, v)
		}
	}
	return all
}

// report adds the results of all networks, and compares them.
func (c conditions) report(r *bench.Report, all bench.Found[found]) error {
	for _, n := range networks() {
		rounds := slices.Concat(all[c.cell(n.name)], []found{nil}) // a round may be missing
		for _, key := range slices.Sorted(maps.Keys(rounds[0])) {
			labels := map[string]string{"network": n.name, "size": strconv.Itoa(c.size), "load": strconv.Itoa(c.percent), "of": c.of}
			words := strings.FieldsFunc(key, func(r rune) bool { return r == ' ' || r == '=' })
			if len(words) > 2 {
				labels[words[2]] = words[3]
			}
			r.Add(words[0], words[1], runs(rounds, key), labels)
		}
	}
	// A median: higher percentiles of two runs differ by more than networks do.
	ratio := func(a, b, claim, source string, target bench.Target) bench.Comparison {
		return bench.Comparison{
			Name: fmt.Sprintf("%s_over_%s_%d_%d_%s", a, b, c.size, c.percent, c.of),
			A:    runs(all[c.cell(a)], latency+"50"), B: runs(all[c.cell(b)], latency+"50"),
			Claim: c.cell("median " + claim), Source: source, Target: target,
		}
	}
	const paper = "comparison of networks for Kubernetes"
	return r.Compare(
		ratio(routesNetwork, hostNetwork, "over routes between nodes by the host network's", paper, bench.AtLeast(1)),
		ratio("vxlan", routesNetwork, "over VXLAN by that over routes between nodes", paper, bench.AtLeast(1)),
		ratio(natBalancer, iptablesBalancer, "through nat by that through iptables", "dissertation, figure 5.6", bench.AtMost(1)),
		ratio(dsrNodes, kubeProxyNodes, "to a pod through dsr by that through kube-proxy", bench.Documented, bench.AtMost(1)),
	)
}
