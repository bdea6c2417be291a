// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
)

// check is the health check of the web servers.
var check = lb.HealthCheck{
	Type: lb.HealthHTTP, Path: "/", Interval: 200 * time.Millisecond, Timeout: 200 * time.Millisecond, Rise: 2, Fall: 3,
}

const (
	// victim is the server that is killed.
	victim = "server3"
	// waitTimeout is how long balancers and router may take to detect a change.
	waitTimeout = 10 * time.Second
)

// checked adds a health check to the TCP services.
func checked(services []lb.Service) []lb.Service {
	services = slices.Clone(services)
	for i := range services {
		if services[i].Protocol == lb.TCP {
			services[i].Health = &check
		}
	}
	return services
}

// failure kills a server while requests run, each on its own connection, and starts it
// again; health checks detect both.
func (s show) failure(ctx context.Context) error {
	s.print("\n== wrk sends requests for 4 s, each on a new connection; meanwhile %s is killed, and started again\n"+
		"   Health check: %s every %s along the path of requests, unhealthy after %d failures, healthy after %d answers",
		victim, check.Type, check.Interval, check.Fall, check.Rise)
	if err := s.configure(ctx, checked(s.without(0))); err != nil {
		return err
	}
	if err := s.awaitVictim(ctx, true); err != nil {
		return err
	}
	result, err := s.during(ctx, s.killAndStart, 4*time.Second, "-H", "Connection: close", webURL)
	if err != nil {
		return err
	}
	s.print("   requests that failed: %d, those to %s from its end until it was out of the rings.", result.Broken(), victim)
	return nil
}

func (s show) killAndStart(ctx context.Context) error {
	if err := netlab.Sleep(ctx, time.Second); err != nil { // wrk gives up if its first connection is refused
		return err
	}
	killed := time.Now()
	if err := s.lab.Kill(ctx, victim, "nginx"); err != nil {
		return err
	}
	if err := s.awaitVictim(ctx, false); err != nil {
		return err
	}
	s.print("   %s is out of the rings of all balancers %s after it was killed", victim, time.Since(killed).Round(time.Millisecond))
	if err := s.lab.Restart(ctx, victim, "nginx"); err != nil {
		return err
	}
	started := time.Now()
	if err := s.awaitVictim(ctx, true); err != nil {
		return err
	}
	s.print("   %s is in again %s after it was started", victim, time.Since(started).Round(time.Millisecond))
	return nil
}

// awaitVictim waits until every balancer uses the victim, and reports it healthy, or
// doesn't.
func (s show) awaitVictim(ctx context.Context, used bool) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	addresses := s.lab.State().Host(victim).Addresses
	for _, h := range s.lab.Hosts(netlab.Balancer) {
		err := netlab.Await(ctx, netlab.Poll, func() error {
			backends, err := netlab.Decode[[]observe.Backend](control.Dial(h.Socket).Backends(ctx, "web"))
			for _, b := range backends {
				if slices.Contains(addresses, b.Address) && b.InUse == used && (b.Health.State == observe.HealthHealthy) == used {
					return nil
				}
			}
			return cmp.Or(err, fmt.Errorf("%s in use: want %v", victim, used))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	return nil
}

// cutOff disconnects a balancer while requests run on persistent connections, and
// connects it again.
func (s show) cutOff(ctx context.Context) error {
	const lost, connections = "lb2", 64
	s.print("\n== wrk keeps %d connections busy for 6 s; meanwhile the link of %s is cut, and mended\n"+
		"   BFD: the router and each balancer send a packet every 100 ms, and detect a failure after 3 missing ones", connections, lost)
	if err := s.awaitBFD(ctx, lost); err != nil {
		return err
	}
	cutAndMend := func(ctx context.Context) error { return s.cutAndMend(ctx, lost) }
	result, err := s.during(ctx, cutAndMend, 6*time.Second, "-c", fmt.Sprint(connections), webURL)
	if err != nil {
		return err
	}
	s.print("   connections broken: %d of %d. Those through %s continue through the others, which have the same rings.",
		result.Broken(), connections, lost)
	return nil
}

func (s show) cutAndMend(ctx context.Context, balancer string) error {
	if err := netlab.Sleep(ctx, time.Second); err != nil { // so that every connection has been used
		return err
	}
	if err := s.lab.Cut(balancer); err != nil {
		return err
	}
	took, err := s.awaitRoutes(ctx, balancer)
	if err != nil {
		return err
	}
	s.print("   %s is out of the router's routes %s after its link was cut", balancer, took)
	if err := s.lab.Mend(balancer); err != nil {
		return err
	}
	if took, err = s.awaitRoutes(ctx); err != nil {
		return err
	}
	s.print("   %s is back %s after it was mended", balancer, took)
	return nil
}

// leave stops a balancer's agent while requests run, each on its own connection, and
// starts it again.
func (s show) leave(ctx context.Context) error {
	const leaving = "lb3"
	s.print("\n== wrk sends requests for 4 s, each on a new connection; meanwhile %s is stopped by SIGTERM, and started again", leaving)
	leaveAndReturn := func(ctx context.Context) error { return s.leaveAndReturn(ctx, leaving) }
	result, err := s.during(ctx, leaveAndReturn, 4*time.Second, "-H", "Connection: close", webURL)
	if err != nil {
		return err
	}
	s.print("   requests that failed: %d. The agent withdraws its routes before it stops, and announces them when it is ready.", result.Broken())
	return nil
}

func (s show) leaveAndReturn(ctx context.Context, balancer string) error {
	if err := netlab.Sleep(ctx, time.Second); err != nil {
		return err
	}
	began := time.Now()
	if err := s.lab.Stop(ctx, balancer, "agent"); err != nil {
		return err
	}
	s.print("   %s withdrew its routes, waited for its traffic to end, and stopped after %s", balancer, time.Since(began).Round(time.Millisecond))
	if _, err := s.awaitRoutes(ctx, balancer); err != nil {
		return err
	}
	if err := s.lab.Restart(ctx, balancer, "agent"); err != nil {
		return err
	}
	took, err := s.awaitRoutes(ctx)
	if err != nil {
		return err
	}
	s.print("   %s is in the routes again %s after it was started", balancer, took)
	return nil
}
