// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

const (
	// failurePace is how many rounds of changes come before each death, and each
	// return.
	failurePace = 3
	// failurePatience is how long balancers may take to notice either.
	failurePatience = 15 * time.Second
)

// healthCheck finds a dead server in two seconds. It leaves time for a machine
// that is busy with thousands of clients.
func healthCheck() *lb.HealthCheck {
	return &lb.HealthCheck{Type: lb.HealthTCP, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 2}
}

// failures kills servers and starts them again, one at a time.
type failures struct {
	site   *site
	random *rand.Rand
	// rounds counts those of changes; dead is the server that is, if any.
	rounds int
	dead   string
}

// round goes on: every few rounds of changes a server dies, or is back.
func (f *failures) round(ctx context.Context) error {
	f.rounds++
	switch {
	case f.rounds%failurePace != 0:
		return nil
	case f.dead == "":
		return f.kill(ctx)
	}
	return f.revive(ctx)
}

// kill kills a server and waits until no balancer sends anything there.
func (f *failures) kill(ctx context.Context) error {
	s := f.site
	names := s.services[0].names
	f.dead = names[f.random.IntN(len(names))]
	s.deaths.Begin(f.dead)
	for _, service := range s.services {
		service.presence.Leave(f.dead)
	}
	processes := s.State().Host(f.dead).Processes
	for _, p := range processes {
		if err := s.Kill(ctx, f.dead, p.Name); err != nil {
			return err
		}
	}
	if err := s.await(ctx, f.dead, observe.HealthUnhealthy); err != nil {
		return err
	}
	s.deaths.Notice()
	return nil
}

// revive starts the dead server again and waits until all balancers know.
func (f *failures) revive(ctx context.Context) error {
	s := f.site
	for _, p := range s.topology.Host(f.dead).Processes {
		if err := s.Restart(ctx, f.dead, p.Name); err != nil {
			return err
		}
	}
	if err := s.await(ctx, f.dead, observe.HealthHealthy); err != nil {
		return err
	}
	s.deaths.End()
	for _, service := range s.services {
		if n := slices.Index(service.names, f.dead); service.weights[n] != absent {
			service.presence.Arrive(f.dead)
		}
	}
	f.dead = ""
	return nil
}

// end leaves no server dead.
func (f *failures) end(ctx context.Context) error {
	if f.dead == "" {
		return nil
	}
	return f.revive(ctx)
}

// await waits until every balancer has found a server so, wherever it is
// configured.
func (s *site) await(ctx context.Context, server string, state observe.HealthState) error {
	ctx, cancel := context.WithTimeout(ctx, failurePatience)
	defer cancel()
	hosts := s.State()
	for _, balancer := range s.balancers {
		for {
			left, err := s.otherwise(ctx, hosts.Host(balancer), server, state)
			if err != nil {
				return fmt.Errorf("%s: %w", balancer, err)
			}
			if left == 0 {
				break
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("%s: %s is not %s in %d places: %w", balancer, server, state, left, ctx.Err())
			}
		}
	}
	return nil
}

// otherwise counts the backends of a balancer that are the server and found
// otherwise.
func (s *site) otherwise(ctx context.Context, balancer *netlab.HostState, server string, state observe.HealthState) (int, error) {
	text, err := observe.Dial(balancer.Socket).Backends(ctx, "")
	if err != nil {
		return 0, err
	}
	var backends []observe.Backend
	if err := json.Unmarshal(text, &backends); err != nil {
		return 0, err
	}
	count := 0
	for _, b := range backends {
		for _, service := range s.services {
			if n := slices.Index(service.names, server); service.addresses[n] == b.Address && b.Health.State != state {
				count++
				break
			}
		}
	}
	return count, nil
}
