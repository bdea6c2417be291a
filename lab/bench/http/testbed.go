// SPDX-License-Identifier: Apache-2.0

package http

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

const (
	clientHost = "client"
	routerHost = "router"
	switchHost = "switch"
	// device is each host's first interface.
	device = "eth0"
	// vip is the address of the first service.
	vip = "10.1.1.1"
)

// part is the hosts whose processor time is added up.
type part string

const (
	client    part = "client"
	network   part = "network" // routers and switches
	balancers part = "balancers"
	servers   part = "servers"
)

// parts are in the order of the report.
var parts = []part{client, network, balancers, servers}

func partOf(h *netlab.HostState) part {
	switch {
	case h.Role == netlab.Client:
		return client
	case h.Role == netlab.Server:
		return servers
	case h.Role == netlab.Switch, h.Role == netlab.Reflector, h.Name == routerHost:
		return network
	default:
		return balancers
	}
}

// finding is one round of a cell.
type finding struct {
	// Rate of answered requests, a second, and the bytes of one at the client.
	Rate, Received, Sent float64
	Failed               int
	// Cost is the processor time of a request in microseconds; empty unless it was measured.
	Cost map[part]float64 `json:",omitempty"`
}

// testbed is a lab with one way.
type testbed struct {
	way
	servers, connections int
	// shaped is set if links limit the requests, otherwise hosts receive in threads.
	shaped      bool
	length      time.Duration
	*netlab.Lab               // nil: not built
	meter       *netlab.Meter // unless links are shaped
}

// cell measures a way in a lab of that name.
func (t *testbed) cell(labs netlab.Labs, lab, name string) (bench.Cell[finding], error) {
	topology, err := t.topology(t.servers)
	programs := append(topology.Programs(), "wrk")
	if t.rules() {
		programs = append(programs, bench.IPTables())
	}
	if t.shaped {
		programs = append(programs, "tc")
	}
	return bench.Cell[finding]{
		Name: name, Programs: programs, Measure: t.measure,
		Stage: bench.Stage{
			Setup: func(ctx context.Context) error { return t.setup(ctx, labs, lab, topology) },
			Remove: func(ctx context.Context) error {
				if t.Lab == nil {
					return nil
				}
				return t.Down(ctx)
			},
		},
	}, err
}

// setup builds the lab and waits until each server has answered.
func (t *testbed) setup(ctx context.Context, labs netlab.Labs, name string, topology netlab.Topology) (err error) {
	probes := topology.Probes
	topology.Probes = nil // some rules aren't loaded yet
	if t.Lab, err = labs.Up(ctx, name, topology); err != nil {
		return err
	}
	for _, h := range t.State().Hosts {
		if t.rules() && partOf(&h) == balancers {
			if _, err := t.Run(ctx, h.Name, bench.IPTables()+"-restore", t.file); err != nil {
				return err
			}
		}
	}
	if t.through != "" { // BGP may lose its routes while requests take all processors
		gateway := t.State().Host(t.through).Addresses[0].String()
		if _, err := t.Run(ctx, routerHost, "ip", "route", "add", vip, "via", gateway); err != nil {
			return err
		}
	}
	if err := t.AwaitProbes(ctx, probes); err != nil {
		return err
	}
	if t.shaped {
		return t.shape(ctx)
	}
	t.meter, err = netlab.NewMeter(ctx, t.Lab)
	return err
}

// measure sends requests for one round: each connection sends the next one when it has an answer.
func (t *testbed) measure(ctx context.Context) (f finding, err error) {
	var busy []map[string]time.Duration // at the begin and at the end
	mark := func() error {
		now, err := t.meter.Busy()
		busy = append(busy, now)
		return err
	}
	if t.shaped {
		mark = nil
	}
	found, err := bench.Requests(ctx, t.Lab, clientHost, t.length, mark, "--timeout", "10s", "-c", strconv.Itoa(t.connections), "http://"+vip+"/")
	if err != nil {
		return f, err
	}
	f = finding{Rate: found.PerSecond, Received: found.Received, Sent: found.Sent, Failed: found.Failed}
	if t.shaped {
		return f, nil
	}
	f.Cost = map[part]float64{}
	requests := found.PerSecond * found.Elapsed.Seconds()
	for _, h := range t.State().Hosts {
		f.Cost[partOf(&h)] += float64((busy[1][h.Name] - busy[0][h.Name]).Microseconds()) / requests
	}
	for _, p := range parts {
		if f.Cost[p] <= 0 {
			return f, fmt.Errorf("no processor time of %s", p)
		}
	}
	return f, nil
}
