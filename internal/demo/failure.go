// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
)

// check is how the demo's web servers are probed.
var check = lb.HealthCheck{
	Type: lb.HealthHTTP, Path: "/", Interval: 200 * time.Millisecond, Timeout: 200 * time.Millisecond, Rise: 2, Fall: 3,
}

const (
	// victim is the server that dies.
	victim = "server3"
	// patience is how long balancers may take to notice something.
	patience = 10 * time.Second
)

// checked gives the services over TCP a health check.
func checked(services []lb.Service) []lb.Service {
	services = slices.Clone(services)
	for i := range services {
		if services[i].Protocol == lb.TCP {
			services[i].Health = &check
		}
	}
	return services
}

// failure kills a server while requests run on connections of their own, and
// starts it again: health checks take it out and in.
func (s stage) failure(ctx context.Context) error {
	s.say("\n== wrk asks for 4 s, a new connection for each request; meanwhile %s is killed, and started again\n"+
		"   Health check: %s every %s along the way that requests take, dead after %d failures, back after %d answers",
		victim, check.Type, check.Interval, check.Fall, check.Rise)
	if err := s.configure(ctx, checked(s.without(0))); err != nil {
		return err
	}
	if err := s.noticed(ctx, true); err != nil {
		return err
	}
	load, err := s.load(ctx, 4*time.Second, "-H", "Connection: close", "http://10.1.1.1:80/")
	if err != nil {
		return err
	}
	if err := s.killAndStart(ctx); err != nil {
		return errors.Join(err, load.kill())
	}
	result, err := load.wait()
	if err != nil {
		return err
	}
	s.say("   %s", result)
	s.say("   requests that failed: %d, those on their way to %s when it died and until it was out.", result.broken(), victim)
	return nil
}

func (s stage) killAndStart(ctx context.Context) error {
	if err := pause(ctx, time.Second); err != nil { // wrk gives up if its first connection is refused
		return err
	}
	killed := time.Now()
	if err := s.lab.Kill(ctx, victim, "nginx"); err != nil {
		return err
	}
	if err := s.noticed(ctx, false); err != nil {
		return err
	}
	s.say("   %s is out of the rings of all balancers %s after it died", victim, time.Since(killed).Round(time.Millisecond))
	if err := s.lab.Restart(ctx, victim, "nginx"); err != nil {
		return err
	}
	started := time.Now()
	if err := s.noticed(ctx, true); err != nil {
		return err
	}
	s.say("   %s is in again %s after it was started", victim, time.Since(started).Round(time.Millisecond))
	return nil
}

// noticed waits until every balancer uses the victim, and has found it healthy, or
// doesn't.
func (s stage) noticed(ctx context.Context, used bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	addresses := s.lab.State().Host(victim).Addresses
	for _, h := range s.balancers() {
		for {
			text, err := observe.Dial(h.Socket).Backends(ctx, "web")
			if err != nil {
				return fmt.Errorf("%s: %w", h.Name, err)
			}
			var backends []observe.Backend
			if err := json.Unmarshal(text, &backends); err != nil {
				return fmt.Errorf("%s: %w", h.Name, err)
			}
			if slices.ContainsFunc(backends, func(b observe.Backend) bool {
				return slices.Contains(addresses, b.Address) && b.InUse == used &&
					(b.Health.State == observe.HealthHealthy) == used
			}) {
				break
			}
			if err := pause(ctx, 5*time.Millisecond); err != nil {
				return fmt.Errorf("%s: %s in use: still not %v: %w", h.Name, victim, used, err)
			}
		}
	}
	return nil
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-time.After(length):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
