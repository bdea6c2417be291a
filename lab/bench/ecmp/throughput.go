// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// The links while throughput is measured take the place of the dissertation's of 1
// Gbit/s, of which one machine that runs all hosts can't serve two.
const (
	throughputServers = 40 // figure 6.2
	balancerLink      = "8mbit"
	serverLink        = "1mbit"
	// serversPerBalancer is the number of servers whose links carry as much as a
	// balancer's.
	serversPerBalancer = 8
	// clientsPerServer is the number of connections: almost each server has some, and their
	// requests wait for less than TCP's shortest retransmission timeout.
	clientsPerServer = 4
	// requestPadding makes a request most of a segment: balancers of l2dsr forward
	// requests, not answers.
	requestPadding = 900
)

// sampleTime is the time of one sample of the response.
const sampleTime = time.Second

// throughput is a testbed with shaped links.
type throughput struct {
	*testbed
	plan throughputPlan
	// failed is the number of requests that failed.
	failed int
}

// throughputPlan is the extent of the measurement.
type throughputPlan struct {
	balancers, servers []int
	// each is the time of one cell.
	each time.Duration
	// periods is the number of random numbers of balancers, samples are taken of each.
	periods, samples int
}

func newThroughputPlan(quick bool) throughputPlan {
	if quick {
		return throughputPlan{[]int{1, balancers}, []int{1, 8, 16, throughputServers}, 2 * time.Second, 5, 3}
	}
	return throughputPlan{[]int{1, 2, 3, 4}, []int{1, 2, 4, 8, 12, 16, 24, 32, throughputServers}, 3 * time.Second, 15, 4}
}

// measureThroughput measures whether the requests a second follow the number of
// balancers and servers: figures 6.2 and 6.4 of the dissertation. The links are
// shaped, so the measurement shows how load spreads, and no speed of forwarding.
func (t *testbed) measureThroughput(ctx context.Context) error {
	return (&throughput{testbed: t, plan: newThroughputPlan(t.config.Quick)}).measure(ctx)
}

func (t *throughput) measure(ctx context.Context) error {
	for _, h := range t.topology.Hosts {
		var rate string
		switch h.Role {
		case netlab.Balancer:
			rate = balancerLink
		case netlab.Server:
			rate = serverLink
		default:
			continue
		}
		if err := bench.Shape(ctx, t.Lab, "switch", h.Name, rate); err != nil {
			return err
		}
	}
	// First the response: once the servers have changed, balancers record connections, and with
	// a record of one that is over a new one from the same port breaks when it changes balancers.
	if err := t.measureResponse(ctx); err != nil {
		return err
	}
	if err := t.measureSteady(ctx); err != nil {
		return err
	}
	labels := t.setting.labels("")
	t.report.Add("requests_failed", "requests", bench.Runs{float64(t.failed)}, labels)
	t.report.Judge(fmt.Sprintf("%s: requests that failed while numbers of balancers and servers changed", t.setting),
		bench.Documented, bench.AtMost(0), float64(t.failed))
	return nil
}

// measureSteady measures each number of balancers with each number of servers.
func (t *throughput) measureSteady(ctx context.Context) error {
	rates := map[[2]int]float64{} // by the numbers of balancers and servers
	for _, servers := range t.plan.servers {
		if err := t.useServers(ctx, servers); err != nil {
			return err
		}
		for _, number := range t.plan.balancers {
			if err := t.scale(ctx, number); err != nil {
				return err
			}
			rate, failed, err := t.request(ctx, servers, t.plan.each)
			if err != nil {
				return err
			}
			t.failed += failed
			rates[[2]int{number, servers}] = rate
			t.report.Add("throughput", "requests/s", bench.Runs{rate}, t.throughputLabels(number, "servers", servers))
			t.config.Log("%s: %d balancers, %d servers: %.0f requests/s", t.setting, number, servers, rate)
		}
	}
	return t.judgeSteady(rates)
}

func (t *throughput) judgeSteady(rates map[[2]int]float64) error {
	var byBalancers, byServers, numbers, servers bench.Runs
	for _, n := range t.plan.balancers {
		numbers, byBalancers = append(numbers, float64(n)), append(byBalancers, rates[[2]int{n, throughputServers}])
	}
	for _, n := range t.plan.servers {
		if n <= balancers*serversPerBalancer {
			servers, byServers = append(servers, float64(n)), append(byServers, rates[[2]int{balancers, n}])
		}
	}
	last := len(byBalancers) - 1
	saturated := bench.Runs{rates[[2]int{1, 2 * serversPerBalancer}]}
	t.report.Ratios["throughput_correlation"] = bench.Correlation(numbers, byBalancers)
	t.report.Ratios["servers_correlation"] = bench.Correlation(servers, byServers)
	t.report.Judge(fmt.Sprintf("%s: correlation of the requests a second and the number of balancers, each behind a link of %s/s", t.setting, balancerLink),
		"dissertation, figure 6.2", bench.AtLeast(0.99), t.report.Ratios["throughput_correlation"])
	t.report.Judge(fmt.Sprintf("%s: correlation of the requests a second and the number of servers, each behind a link of %s/s, below the balancers' limit", t.setting, serverLink),
		"dissertation, figure 6.2", bench.AtLeast(0.99), t.report.Ratios["servers_correlation"])
	return t.report.Compare(
		bench.Comparison{
			Name: "throughput_most_over_one", A: byBalancers[last:], B: byBalancers[:1],
			Claim:  fmt.Sprintf("%s: requests a second with four balancers over those with one", t.setting),
			Source: "dissertation, figure 6.2", Target: bench.AtLeast(3.8),
		},
		bench.Comparison{
			Name: "throughput_saturated", A: byBalancers[:1], B: saturated,
			Claim:  fmt.Sprintf("%s: requests a second of one balancer with %d servers over those with %d, twice as many as its link serves", t.setting, throughputServers, 2*serversPerBalancer),
			Source: "dissertation, figure 6.2", Target: bench.AtMost(1.1),
		},
	)
}

// measureResponse changes the number of balancers at random and samples the requests
// answered in each second, also during the changes.
func (t *throughput) measureResponse(ctx context.Context) error {
	var numbers, answers bench.Runs // of each second: balancers, and bytes to the client
	length := time.Duration(t.plan.periods*t.plan.samples) * sampleTime
	wrk, err := t.Wrk(ctx, clientHost, 2*length+stepTimeout, t.requests(throughputServers)...) // it is interrupted below
	if err != nil {
		return err
	}
	began := time.Now()
	err = t.sampleResponse(ctx, &numbers, &answers)
	elapsed := time.Since(began)
	if err := errors.Join(err, wrk.Interrupt()); err != nil {
		return err
	}
	result, err := wrk.Wait()
	if err != nil {
		return err
	}
	t.config.Log("%s: while the number of balancers changes: %s", t.setting, result)
	t.failed += result.Broken() + result.NotOK
	// All answers have the same size.
	scale := float64(result.Requests) / elapsed.Seconds() / (answers.Sum() / float64(len(answers)))
	for i := range answers {
		answers[i] *= scale
	}
	for period := range t.plan.periods {
		from := period * t.plan.samples
		t.report.Add("throughput_response", "requests/s", answers[from:from+t.plan.samples],
			t.throughputLabels(int(numbers[from]), "period", period+1))
	}
	t.report.Ratios["response_correlation"] = bench.Correlation(numbers, answers)
	t.report.Judge(fmt.Sprintf("%s: correlation of each second's requests and the number of balancers in it, while that changes at random", t.setting),
		"dissertation, figure 6.4", bench.AtLeast(0.9), t.report.Ratios["response_correlation"])
	return nil
}

// sampleResponse draws the numbers of balancers and appends the samples.
func (t *throughput) sampleResponse(ctx context.Context, numbers, answers *bench.Runs) error {
	random := t.config.random(3)
	ticker := time.NewTicker(sampleTime)
	defer ticker.Stop()
	last, _, err := bench.Bytes(t.Lab, clientHost)
	if err != nil {
		return err
	}
	at := time.Now()
	for range t.plan.periods {
		c := t.fleet.randomScale(random)
		if err := t.apply(ctx, c); err != nil {
			return err
		}
		for range t.plan.samples {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			received, _, err := bench.Bytes(t.Lab, clientHost)
			if err != nil {
				return err
			}
			now := time.Now()
			*numbers = append(*numbers, float64(len(t.fleet.in(serving))))
			*answers = append(*answers, float64(received-last)/now.Sub(at).Seconds())
			last, at = received, now
		}
	}
	return nil
}

// useServers configures all balancers with the first servers.
func (t *throughput) useServers(ctx context.Context, number int) error {
	services := slices.Clone(t.topology.Services)
	for i := range services {
		services[i].Backends = services[i].Backends[:number]
	}
	lab := t.State()
	group, working := errgroup.WithContext(ctx)
	for _, name := range t.names {
		group.Go(func() error {
			return lab.Host(name).Configure(working, t.topology.Host(name).Agent.With(services))
		})
	}
	return group.Wait()
}

// scale makes the first balancers serve, and waits for the router.
func (t *throughput) scale(ctx context.Context, number int) error {
	var out, in []int
	for n, state := range t.fleet {
		switch {
		case n < number && state == drained:
			in = append(in, n)
		case n >= number && state == serving:
			out = append(out, n)
		}
	}
	if err := errors.Join(t.apply(ctx, change{undrain, in}), t.apply(ctx, change{drain, out})); err != nil {
		return err
	}
	return t.await(ctx, t.tables(t.fleet))
}

// request has the clients of so many servers send requests, and returns the number a second and
// how many failed.
func (t *throughput) request(ctx context.Context, servers int, length time.Duration) (rate float64, failed int, err error) {
	found, err := bench.Requests(ctx, t.Lab, clientHost, length, nil, t.requests(servers)...)
	if err != nil {
		return 0, 0, err
	}
	if found.Failed > 0 {
		t.config.Log("%s: %d requests failed", t.setting, found.Failed)
	}
	return found.PerSecond, found.Failed, nil
}

// requests are the arguments of wrk: each client sends its next request when it has the answer.
func (t *throughput) requests(servers int) []string {
	return []string{
		"--timeout", "10s", "-c", strconv.Itoa(clientsPerServer * servers),
		"-H", "X-Padding: " + strings.Repeat("x", requestPadding), "http://" + t.vips[ipv4].Addr().String() + "/",
	}
}

func (t *throughput) throughputLabels(balancers int, name string, value int) map[string]string {
	labels := t.setting.labels(ipv4)
	labels["balancers"], labels[name] = strconv.Itoa(balancers), strconv.Itoa(value)
	return labels
}
