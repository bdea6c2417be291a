// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
)

const (
	// failureInterval is the number of rounds of changes before a server is killed,
	// and before it is started again.
	failureInterval = 3
	// failureTimeout is how long balancers may take to detect either.
	failureTimeout = 15 * time.Second
)

// checkServers has all servers checked, and returns when all balancers find them healthy. A dead
// server is detected in two seconds, on a machine that is busy with thousands of clients.
func (t *testbed) checkServers(ctx context.Context) error {
	for _, service := range t.services {
		service.check = &lb.HealthCheck{Type: lb.HealthTCP, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 2}
	}
	if err := t.configure(ctx); err != nil {
		return err
	}
	for _, name := range t.services[0].names {
		if err := t.await(ctx, name, observe.HealthHealthy); err != nil {
			return err
		}
	}
	return nil
}

// failures kills servers and starts them again, one at a time.
type failures struct {
	testbed *testbed
	random  *rand.Rand
	// rounds counts rounds of changes; dead is the killed server, if any.
	rounds int
	dead   string
}

// round is called after each round of changes.
func (f *failures) round(ctx context.Context) error {
	f.rounds++
	switch {
	case f.rounds%failureInterval != 0:
		return nil
	case f.dead == "":
		return f.kill(ctx)
	}
	return f.revive(ctx)
}

// kill kills a server and waits until no balancer sends to it.
func (f *failures) kill(ctx context.Context) error {
	t := f.testbed
	names := t.services[0].names
	f.dead = names[f.random.IntN(len(names))]
	t.deaths.Begin(f.dead)
	for _, service := range t.services {
		service.presence.Leave(f.dead)
	}
	processes := t.State().Host(f.dead).Processes
	for _, p := range processes {
		if err := t.Kill(ctx, f.dead, p.Name); err != nil {
			return err
		}
	}
	if err := t.await(ctx, f.dead, observe.HealthUnhealthy); err != nil {
		return err
	}
	t.deaths.Notice()
	return nil
}

// revive starts the dead server again and waits until all balancers use it.
func (f *failures) revive(ctx context.Context) error {
	t := f.testbed
	for _, p := range t.topology.Host(f.dead).Processes {
		if err := t.Restart(ctx, f.dead, p.Name); err != nil {
			return err
		}
	}
	if err := t.await(ctx, f.dead, observe.HealthHealthy); err != nil {
		return err
	}
	t.deaths.End()
	for _, service := range t.services {
		if n := slices.Index(service.names, f.dead); service.weights[n] != absent {
			service.presence.Arrive(f.dead)
		}
	}
	f.dead = ""
	return nil
}

// end revives the dead server.
func (f *failures) end(ctx context.Context) error {
	if f.dead == "" {
		return nil
	}
	return f.revive(ctx)
}

// await waits until every balancer reports this state of a server in all services.
func (t *testbed) await(ctx context.Context, server string, state observe.HealthState) error {
	ctx, cancel := context.WithTimeout(ctx, failureTimeout)
	defer cancel()
	hosts := t.State()
	for _, balancer := range t.balancers {
		err := netlab.Await(ctx, netlab.Poll, func() error { return t.checkState(ctx, hosts.Host(balancer), server, state) })
		if err != nil {
			return fmt.Errorf("%s: %w", balancer, err)
		}
	}
	return nil
}

// checkState returns an error if a balancer has the server in another state in some service.
func (t *testbed) checkState(ctx context.Context, balancer *netlab.HostState, server string, state observe.HealthState) error {
	backends, err := netlab.Decode[[]observe.Backend](control.Dial(balancer.Socket).Backends(ctx, ""))
	if err != nil {
		return err
	}
	own := t.State().Host(server).Addresses
	for _, b := range backends {
		if slices.Contains(own, b.Address) && b.Health.State != state {
			return fmt.Errorf("%s is %s in %s, want %s", server, b.Health.State, b.Service, state)
		}
	}
	return nil
}
