// SPDX-License-Identifier: Apache-2.0

// Package demo shows what Fairlead does: it brings up the lab "ecmp", sends
// real HTTP requests through its router, balancers and servers, and says what
// happened to them. `make demo` runs it.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/netlab/operator"
)

const (
	balancers = 3
	// servers is one more than are in use at a time: the reload takes one out and
	// the spare one in.
	servers = 5
)

// Demo is one run.
type Demo struct {
	Labs netlab.Labs
	// Fairlead is the path of the executable that runs in the lab.
	Fairlead string
	// Name of the lab, which must not exist yet.
	Name string
	Out  io.Writer
}

// stage is a demo whose lab is up.
type stage struct {
	Demo
	lab      *netlab.Lab
	topology netlab.Topology
	services []lb.Service
}

// Run shows everything and takes the lab down again, also when it fails.
func (d Demo) Run(ctx context.Context) (err error) {
	topology, err := netlab.ECMP(netlab.ECMPOptions{
		Fairlead: d.Fairlead, Forward: lb.L2DSR, Balancers: balancers, Servers: servers, Router: netlab.FRR,
	})
	if err != nil {
		return err
	}
	s := stage{Demo: d, topology: topology, services: topology.Services}
	s.topology.SetServices(s.without(servers - 1))
	for i := range s.topology.Probes {
		p := &s.topology.Probes[i]
		p.Answers = p.Answers[:servers-1]
	}
	d.say("== A client, a router, %d balancers and %d nginx servers, each in its own network namespace", balancers, servers)
	lab, err := d.Labs.Up(ctx, d.Name, s.topology)
	if err != nil {
		return err
	}
	defer func() {
		d.say("\n== Removing the lab")
		err = errors.Join(err, lab.Down(context.WithoutCancel(ctx)))
		if err == nil {
			d.say(farewell)
		}
	}()
	s.lab = lab
	// A balancer is lost before servers come and go: for some time after that a
	// connection's server may be known only to the balancer that it goes through.
	for _, show := range []func(context.Context) error{s.routes, s.spread, s.cutOff, s.leave, s.change, s.failure} {
		if err := show(ctx); err != nil {
			return cmp.Or(context.Cause(ctx), err) // what an interruption breaks is no news
		}
	}
	return nil
}

const farewell = `
To keep a lab and look around:
  bin/fairlead lab up ecmp --name try --router frr
  bin/fairlead lab exec try client -- curl -s http://10.1.1.1/
  bin/fairlead backends --socket /run/fairlead/labs/try/lb1/agent.sock
  bin/fairlead lab exec try lb1 -- curl -s http://127.0.0.1:9571/metrics
  bin/fairlead routes --socket /run/fairlead/labs/try/lb1/agent.sock
  bin/fairlead lab exec try router -- ip route
  vtysh --vty_socket /run/fairlead/labs/try/router -c 'show bgp summary'
  bin/fairlead lab down try`

func (d Demo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

// spread sends requests on connections of their own and shows where they went.
func (s stage) spread(ctx context.Context) error {
	before, err := s.forwarded(ctx)
	if err != nil {
		return err
	}
	// Not zero if requests came while the balancers were being started.
	straysBefore, err := s.strays()
	if err != nil {
		return err
	}
	for _, url := range []string{"http://10.1.1.1:80/", "http://[fd00:10:1:1::1]:80/"} {
		s.say("\n== wrk asks %s for 3 s, a new connection for each request", url)
		load, err := s.load(ctx, 3*time.Second, "-H", "Connection: close", url)
		if err != nil {
			return err
		}
		result, err := load.wait()
		if err != nil {
			return err
		}
		s.say("   %s", result)
	}
	after, err := s.forwarded(ctx)
	if err != nil {
		return err
	}
	s.say("\n== The router spread them over the balancers, each balancer over the servers (packets forwarded)")
	after.minus(before).print(s.Out)
	strays, err := s.strays()
	if err != nil {
		return err
	}
	s.say("   Servers answer the client directly. Answers that passed a balancer: %d packets.", strays-straysBefore)
	return nil
}

// change takes one server out of the configuration and another one in while
// requests run on lasting connections, and counts what broke.
func (s stage) change(ctx context.Context) error {
	const connections = 64
	s.say("\n== wrk keeps %d connections busy for 5 s; meanwhile server1 leaves and server%d comes", connections, servers)
	load, err := s.load(ctx, 5*time.Second, "-c", fmt.Sprint(connections), "http://10.1.1.1:80/")
	if err != nil {
		return err
	}
	if err := pause(ctx, 2*time.Second); err != nil { // so that every connection has been used
		return errors.Join(err, load.kill())
	}
	if err := s.configure(ctx, s.without(0)); err != nil {
		return errors.Join(err, load.kill())
	}
	result, err := load.wait()
	if err != nil {
		return err
	}
	s.say("   %s", result)
	s.say("   connections broken: %d of %d. New connections go to the servers that are left and to server%d; those that\n"+
		"   were there before the change stay where they are, also on server1, until they end.", result.broken(), connections, servers)
	return nil
}

// without is the services with all servers but the nth.
func (s stage) without(n int) []lb.Service {
	services := slices.Clone(s.services)
	for i := range services {
		services[i].Backends = slices.Delete(slices.Clone(services[i].Backends), n, n+1)
	}
	return services
}

// configure gives every balancer new services and waits until they are
// programmed.
func (s stage) configure(ctx context.Context, services []lb.Service) error {
	for _, host := range s.balancers() {
		started := time.Now()
		if err := operator.Configure(ctx, &host, s.topology.Host(host.Name).Agent.With(services)); err != nil {
			return err
		}
		s.say("   %s reloaded its configuration in %.1f ms", host.Name, float64(time.Since(started).Microseconds())/1000)
	}
	return nil
}

func (s stage) balancers() []netlab.HostState {
	return slices.DeleteFunc(s.lab.State().Hosts, func(h netlab.HostState) bool { return h.Role != netlab.Balancer })
}
