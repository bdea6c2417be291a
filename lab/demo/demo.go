// SPDX-License-Identifier: Apache-2.0

// Package demo shows Fairlead at work: it builds the lab "ecmp", sends real HTTP
// requests through its router, balancers and servers, and prints the results.
// cmd/fairlab calls it for "make demo".
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
)

const (
	balancers = 3
	// servers is one more than are in use: a reload replaces one by the spare one.
	servers = 5
)

// Demo is one run.
type Demo struct {
	Labs netlab.Labs
	// Name of the lab, which must not exist yet.
	Name string
	Out  io.Writer
}

// show is a demo whose lab is up.
type show struct {
	Demo
	lab      *netlab.Lab
	topology netlab.Topology
	services []lb.Service
}

// Run runs the demo and removes the lab, also when it fails.
func (d Demo) Run(ctx context.Context) (err error) {
	topology, err := netlab.ECMP(netlab.ECMPOptions{
		Forward: lb.L2DSR, Balancers: balancers, Servers: servers, Router: netlab.FRR,
	})
	if err != nil {
		return err
	}
	if err := netlab.CheckPrograms(append(topology.Programs(), "wrk")...); err != nil {
		return err
	}
	s := show{Demo: d, topology: topology, services: topology.Services}
	s.topology.SetServices(s.without(servers - 1))
	for i := range s.topology.Probes {
		p := &s.topology.Probes[i]
		p.Answers = p.Answers[:servers-1]
	}
	d.print("== A client, a router, %d balancers and %d nginx servers, each in its own network namespace", balancers, servers)
	lab, err := d.Labs.Up(ctx, d.Name, s.topology)
	if err != nil {
		return err
	}
	defer func() {
		d.print("\n== Removing the lab")
		err = errors.Join(err, lab.Down(context.WithoutCancel(ctx)))
		if err == nil {
			d.print(nextSteps)
		}
	}()
	s.lab = lab
	// Balancers are lost before servers change: for some time after a change only one
	// balancer may track a connection's server.
	for _, part := range []func(context.Context) error{s.routes, s.spread, s.cutOff, s.leave, s.change, s.failure} {
		if err := part(ctx); err != nil {
			return cmp.Or(context.Cause(ctx), err) // an interrupt breaks the rest
		}
	}
	return nil
}

const nextSteps = `
To keep a lab and look around:
  bin/fairlab lab up ecmp --name try --router frr
  bin/fairlab lab exec try client -- curl -s http://10.1.1.1/
  bin/fairlead backends --socket /run/fairlead/labs/try/lb1/agent.sock
  bin/fairlab lab exec try lb1 -- curl -s http://127.0.0.1:9571/metrics
  bin/fairlead routes --socket /run/fairlead/labs/try/lb1/agent.sock
  bin/fairlab lab exec try router -- ip route
  vtysh --vty_socket /run/fairlead/labs/try/router -c 'show bgp summary'
  bin/fairlab lab down try`

func (d Demo) print(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

const webURL = "http://10.1.1.1:80/"

// during acts while wrk sends requests of the client, and prints their result.
func (s show) during(
	ctx context.Context, act func(context.Context) error, length time.Duration, args ...string,
) (result netlab.WrkResult, err error) {
	load, err := s.lab.Wrk(ctx, "client", length, args...)
	if err != nil {
		return result, err
	}
	if err := act(ctx); err != nil {
		return result, errors.Join(err, load.Kill())
	}
	if result, err = load.Wait(); err == nil {
		s.print("   %s", result)
	}
	return result, err
}

// spread sends requests, each on its own connection, and shows their distribution.
func (s show) spread(ctx context.Context) error {
	before, err := s.forwarded(ctx)
	if err != nil {
		return err
	}
	// Requests may have arrived before the balancers were ready.
	passedBefore, err := s.passed(ctx)
	if err != nil {
		return err
	}
	for _, url := range []string{webURL, "http://[fd00:10:1:1::1]:80/"} {
		s.print("\n== wrk sends requests to %s for 3 s, each on a new connection", url)
		nothing := func(context.Context) error { return nil }
		if _, err := s.during(ctx, nothing, 3*time.Second, "-H", "Connection: close", url); err != nil {
			return err
		}
	}
	after, err := s.forwarded(ctx)
	if err != nil {
		return err
	}
	s.print("\n== The router spread them over the balancers, each balancer over the servers (packets forwarded)")
	after.minus(before).print(s.Out)
	passed, err := s.passed(ctx)
	if err != nil {
		return err
	}
	s.print("   Servers answer the client directly. Answers that passed a balancer: %d packets.", passed-passedBefore)
	return nil
}

// change replaces one server while requests run on persistent connections, and counts
// those that break.
func (s show) change(ctx context.Context) error {
	const connections = 64
	s.print("\n== wrk keeps %d connections busy for 5 s; meanwhile server1 leaves and server%d comes", connections, servers)
	replace := func(ctx context.Context) error {
		if err := netlab.Sleep(ctx, 2*time.Second); err != nil { // every connection has been used
			return err
		}
		return s.configure(ctx, s.without(0))
	}
	result, err := s.during(ctx, replace, 5*time.Second, "-c", fmt.Sprint(connections), webURL)
	if err != nil {
		return err
	}
	s.print("   connections broken: %d of %d. New connections go to the servers that are left and to server%d; those that\n"+
		"   were there before the change stay where they are, also on server1, until they end.", result.Broken(), connections, servers)
	return nil
}

// without returns the services with all servers but the nth.
func (s show) without(n int) []lb.Service {
	services := slices.Clone(s.services)
	for i := range services {
		services[i].Backends = slices.Delete(slices.Clone(services[i].Backends), n, n+1)
	}
	return services
}

// configure configures services on every balancer and waits until they are programmed.
func (s show) configure(ctx context.Context, services []lb.Service) error {
	for _, host := range s.lab.Hosts(netlab.Balancer) {
		started := time.Now()
		if err := host.Configure(ctx, s.topology.Host(host.Name).Agent.With(services)); err != nil {
			return err
		}
		s.print("   %s reloaded its configuration in %.1f ms", host.Name, float64(time.Since(started).Microseconds())/1000)
	}
	return nil
}

// routes shows how the router learns the routes to the VIPs.
func (s show) routes(ctx context.Context) error {
	s.print("\n== The balancers announce the VIPs by BGP; FRR puts them into the router's kernel")
	if err := s.showTable(); err != nil {
		return err
	}
	for _, h := range s.lab.Hosts(netlab.Balancer) {
		if err := s.awaitBFD(ctx, h.Name); err != nil {
			return err
		}
	}
	s.print("   fairlead routes on lb1:\n")
	routes, err := s.announced(ctx, "lb1")
	if err != nil {
		return err
	}
	for line := range strings.Lines(observe.FormatRoutes(routes, time.Now())) {
		s.print("%s", strings.TrimRight("   "+line, " \n"))
	}
	return nil
}

// showTable shows the router's routes to the VIPs.
func (s show) showTable() error {
	for _, r := range s.topology.Learned {
		routes, err := s.lab.FollowRoutes(r.Host, r.Prefix)
		if err != nil {
			return err
		}
		s.print("   router: %-18s via %s", r.Prefix, strings.Join(routes.Via(r.Prefix), ", "))
		routes.Close()
	}
	return nil
}

// announced returns a balancer's routes.
func (s show) announced(ctx context.Context, balancer string) (observe.Routes, error) {
	return netlab.Decode[observe.Routes](control.Dial(s.lab.State().Host(balancer).Socket).Routes(ctx))
}

// awaitRoutes waits until the router's routes lead to all balancers except some, and
// returns the time that it took.
func (s show) awaitRoutes(ctx context.Context, except ...string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	began := time.Now()
	for _, r := range s.topology.Learned {
		r.Via = slices.DeleteFunc(slices.Clone(r.Via), func(name string) bool { return slices.Contains(except, name) })
		if err := s.lab.AwaitRoute(ctx, r); err != nil {
			return 0, err
		}
	}
	return time.Since(began).Round(time.Millisecond), nil
}

// awaitBFD waits until a balancer and the router monitor each other.
func (s show) awaitBFD(ctx context.Context, balancer string) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	return netlab.AwaitSessions(ctx, []string{s.lab.State().Host(balancer).Socket}, true)
}
