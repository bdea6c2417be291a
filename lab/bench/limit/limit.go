// SPDX-License-Identifier: Apache-2.0

// Package limit compares the requests a second that links carry with their rate over the bytes of
// a request: appendix C and figure 5.3 of the dissertation. A captured connection gives the
// bytes, and each link of a lab is shaped in turn. cmd/fairlab calls Run.
package limit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/safchain/ethtool"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// perConnection is the number of requests of a connection: nginx's keepalive_requests before
// 1.19.10, and the dissertation's.
const perConnection = 100

// sample is the findings of one size of answers.
type sample struct {
	Size    int
	Traffic traffic
	// Rates are requests a second by the shaped link, of each run.
	Rates map[string]bench.Runs
}

// Run builds a lab for each mode, measures, and removes it.
func Run(ctx context.Context, cfg bench.Config, name string) (*bench.Report, error) {
	sizes, runs, length := []int{13, 128, 1000, 4096, 16384, 65536}, 3, 2*time.Second
	if cfg.Quick {
		sizes, runs, length = []int{13, 4096}, 1, time.Second
	}
	b := bench.Bench[[]sample]{Name: "limit", Report: report}
	for _, mode := range modes() {
		topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: mode, Balancers: 1, Servers: 1})
		if err != nil {
			return nil, err
		}
		web := topology.Services[0]
		topology.Host("server1").ServeSizes(web.Backends[0].Port, perConnection, sizes...)
		t := &testbed{service: web, length: length}
		cell := bench.Cell[[]sample]{Name: mode.String(), Programs: append(topology.Programs(), "tc", "wrk")}
		cell.Setup = func(ctx context.Context) (err error) {
			t.Lab, err = cfg.Labs.Up(ctx, name, topology)
			return err
		}
		cell.Remove = func(ctx context.Context) error { return t.Down(ctx) }
		cell.Measure = func(ctx context.Context) (all []sample, err error) {
			for _, size := range sizes {
				cfg.Log("%s: answers of %d bytes", mode, size)
				s, err := t.measure(ctx, size, runs)
				if err != nil {
					return nil, err
				}
				all = append(all, s)
			}
			return all, nil
		}
		b.Groups = append(b.Groups, bench.Single(cell))
	}
	return bench.Run(ctx, cfg, b)
}

func modes() []lb.Forward { return []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.NAT} }

func report(r *bench.Report, found bench.Found[[]sample]) error {
	for _, mode := range modes() {
		for _, samples := range found[mode.String()] { // one, if it was measured
			worst := 0.0
			for _, s := range samples {
				worst = max(worst, s.report(r, mode))
			}
			r.Ratios[mode.String()+"_deviation"] = worst
			r.Judge(mode.String()+": greatest deviation of a link's requests a second from its rate over the bytes of a request",
				"dissertation, figure 5.3", bench.AtMost(0.03), worst)
			if mode == lb.L2DSR {
				samples[0].tables(r)
			}
		}
	}
	return nil
}

// report adds the rates, and returns the greatest deviation. If all links have the same rate, the
// one that carries most bytes decides how many requests they allow.
func (s sample) report(r *bench.Report, mode lb.Forward) (worst float64) {
	most, size := 0.0, strconv.Itoa(s.Size)
	for _, l := range s.Traffic.links(mode) {
		labels := map[string]string{"mode": mode.String(), "size": size, "link": l.name}
		most = max(most, l.bytes)
		predicted, measured := 1e9/8/l.bytes, bench.Runs{}
		for _, rate := range s.Rates[l.name] {
			measured = append(measured, rate*1e9/l.rate())
		}
		r.Add("bytes", "bytes/request", bench.Runs{l.bytes}, labels)
		r.Add("predicted", "requests/s per Gbit/s", bench.Runs{predicted}, labels)
		r.Add("measured", "requests/s per Gbit/s", measured, labels)
		if measured.Median() > 0 {
			worst = max(worst, math.Abs(measured.Median()/predicted-1))
		}
	}
	for _, gigabit := range []int{1, 10, 25, 100} {
		labels := map[string]string{"mode": mode.String(), "size": size, "gigabit": strconv.Itoa(gigabit)}
		r.Add("allowed", "requests/s", bench.Runs{float64(gigabit) * 1e9 / 8 / most}, labels)
	}
	return worst
}

// tables adds tables C.1 and C.2.
func (s sample) tables(r *bench.Report) {
	for _, direction := range []string{request, answer} {
		for _, kind := range []string{"syn", "ack", "data", "fin"} {
			labels, seen := map[string]string{"direction": direction, "kind": kind}, s.Traffic[direction][kind]
			r.Add("captured_packets", "packets", bench.Runs{float64(seen.Packets)}, labels)
			r.Add("captured_bytes", "bytes", bench.Runs{float64(seen.Bytes)}, labels)
		}
	}
}

// testbed is a lab with one balancer and one server.
type testbed struct {
	*netlab.Lab // nil: not built
	service     lb.Service
	length      time.Duration // of a run
}

// mtu is the links'. Of answers that take several packets the client acknowledges each packet. By
// itself it acknowledges as many at once as came before it ran, another number in each run.
const mtu = 1500

// measure captures a connection while no link is limited, and then measures each link. Answers are
// paced all the time, so that the client gets one packet after the other.
func (t *testbed) measure(ctx context.Context, size, runs int) (s sample, err error) {
	c := capture{server: t.service.Address}
	var stop func() error
	err = errors.Join(t.pace(ctx), t.Do("switch", keepFrames), t.Do("client", func() (err error) {
		stop, err = bench.Tap("eth0", c.see)
		return err
	}))
	if err == nil && size > mtu {
		_, err = t.Run(ctx, "client", "sh", "-c", "ip route change $(ip route show default) quickack 1")
	}
	if err != nil {
		return s, err
	}
	_, err = t.request(ctx, 1, size)
	err = errors.Join(err, stop())
	if n := c.traffic[request]["data"].Packets; err == nil && n != perConnection {
		err = fmt.Errorf("capture: %d requests, want %d", n, perConnection)
	}
	s = sample{Size: size, Traffic: c.traffic, Rates: map[string]bench.Runs{}}
	for _, l := range c.traffic.links(t.service.Forward) {
		if err == nil && l.host != "" {
			s.Rates[l.name], err = t.shaped(ctx, l, size, runs)
		}
	}
	return s, err
}

// pace has answers sent to the client at twice the rate that a shaped link allows.
func (t *testbed) pace(ctx context.Context) error {
	return bench.Shape(ctx, t.Lab, "router", "eth0", fmt.Sprintf("%.0fbit", 2*8*answers))
}

// keepFrames keeps packets that XDP sends into the switch from being merged: frames are counted.
func keepFrames() error {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer tool.Close()
	return tool.Change("lb1", map[string]bool{"rx-gro": false})
}

// shaped returns the requests a second, of each run, while a link has its rate, of all bytes on
// the wire. Its queue holds all packets on the way, so clients wait, and none is dropped.
func (t *testbed) shaped(ctx context.Context, l link, size, runs int) (rates bench.Runs, err error) {
	const clients = 8 // some wait while others fill the link
	_, err = t.Run(ctx, l.host, "tc", "qdisc", "replace", "dev", l.device, "root", "tbf", "rate", fmt.Sprintf("%.0fbit", l.rate()),
		"burst", fmt.Sprintf("%.0fb", l.rate()/1000), "limit", "2m", "overhead", strconv.Itoa(overhead)) // the burst is 8 ms
	for err == nil && len(rates) < runs {
		var rate float64
		rate, err = t.request(ctx, clients, size)
		rates = append(rates, rate)
	}
	_, removed := t.Run(ctx, l.host, "tc", "qdisc", "del", "dev", l.device, "root")
	return rates, errors.Join(err, removed, t.pace(ctx))
}

// request sends requests for a run, the next of a client after an answer, and returns how many a
// second are answered.
func (t *testbed) request(ctx context.Context, clients, size int) (perSecond float64, err error) {
	url := "http://" + t.service.Address.String() + netlab.SizePath(size)
	wrk, err := t.Wrk(ctx, "client", t.length, "--timeout", "10s", "-c", strconv.Itoa(clients), url)
	if err != nil {
		return 0, err
	}
	result, err := wrk.Wait()
	if err == nil && result.Broken()+result.NotOK > 0 {
		err = fmt.Errorf("requests failed: %s", result)
	}
	return result.Rate, err
}
