// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

const (
	// checkedPort is the port of the first load balancer whose members are checked.
	checkedPort = 10000
	// checkInterval is the interval of health checks in seconds: thousands of probes a second leave the processors
	// time for the rest.
	checkInterval = 2
	// changers change health at the same time.
	changers = 4
	// balancerPause is the time between two requests that wait for the balancer.
	balancerPause = 20 * time.Millisecond
	healthTimeout = 2 * time.Minute
)

// checked is a load balancer whose members are checked.
type checked struct {
	balancer
	port    int
	service string // its name at the balancer
}

// verdicts are the milliseconds of changes of health.
type verdicts struct {
	// Total is from when a server closes or opens its port to Octavia's status. It is the sum of Noticed, until the
	// balancer's verdict, and Reported.
	Total, Noticed, Reported bench.Runs
}

// measureHealth changes the health of members.
func (t *testbed) measureHealth(ctx context.Context) (s seen, err error) {
	defer func() { err = t.withLogs(err) }()
	all, err := t.createChecked(ctx)
	if err != nil {
		return s, err
	}
	began := time.Now()
	for _, status := range []string{"OFFLINE", "ERROR", "DEGRADED"} {
		if err := t.awaitNone(ctx, "operating_status="+status); err != nil {
			return s, err
		}
	}
	s.Shown = time.Since(began).Seconds()
	if err := t.nameServices(ctx, all); err != nil {
		return s, err
	}
	var mu sync.Mutex
	found := &s.Verdicts
	for len(found.Total) < t.cfg.Changes {
		group, within := errgroup.WithContext(ctx)
		group.SetLimit(changers)
		for _, n := range rand.Perm(len(all))[:min(len(all), (t.cfg.Changes-len(found.Total)+1)/2)] {
			group.Go(func() error {
				both, err := t.changeHealth(within, all[n])
				mu.Lock()
				defer mu.Unlock()
				found.Total = append(found.Total, both.Total...)
				found.Noticed = append(found.Noticed, both.Noticed...)
				found.Reported = append(found.Reported, both.Reported...)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// createChecked makes a load balancer by Octavia's API, and copies of it (copy.go).
func (t *testbed) createChecked(ctx context.Context) ([]*checked, error) {
	pool := fields{"healthmonitor": fields{
		"type": "TCP", "delay": checkInterval, "timeout": 1, "max_retries": 1, "max_retries_down": 1,
	}}
	var at []fields
	for server := range members {
		at = append(at, t.member(server, checkedPort))
		for n := range t.cfg.Balancers {
			if err := t.servers.open(server, checkedPort+n, func() {}); err != nil {
				return nil, err
			}
		}
	}
	pool["members"] = at
	made, err := t.create(ctx, "TCP", checkedPort, pool)
	if err == nil {
		err = t.awaitActive(ctx, made.ID)
	}
	if err != nil {
		return nil, err
	}
	if count := t.cfg.Balancers - 1; count > 0 {
		if err := t.copyRows(ctx, made, count); err != nil {
			return nil, err
		}
		if err := t.copyDocuments(ctx, made, count); err != nil {
			return nil, err
		}
	}
	all := []*checked{{balancer: made, port: checkedPort}}
	for n := 1; n < t.cfg.Balancers; n++ {
		one := &checked{balancer: balancer{ID: copyID(made.ID, n), VIP: copyVIP(n).String()}, port: checkedPort + n}
		one.Pools = []struct{ ID string }{{copyID(made.Pools[0].ID, n)}}
		all = append(all, one)
	}
	return all, nil
}

// nameServices reads the names of services at the balancer.
func (t *testbed) nameServices(ctx context.Context, all []*checked) error {
	services, err := netlab.Decode[[]observe.Service](t.agent().Services(ctx))
	if err != nil {
		return err
	}
	names := map[netip.AddrPort]string{}
	for _, s := range services {
		names[netip.AddrPortFrom(s.Address, s.Port)] = s.Name
	}
	for _, one := range all {
		vip, err := netip.ParseAddr(one.VIP)
		if err != nil {
			return err
		}
		if one.service = names[netip.AddrPortFrom(vip, uint16(one.port))]; one.service == "" {
			return fmt.Errorf("the balancer has no service at %s port %d", vip, one.port)
		}
	}
	return nil
}

// agent is the balancer's.
func (t *testbed) agent() *control.Client { return control.Dial(t.State().Host("lb1").Socket) }

// changeHealth has a member die and return.
func (t *testbed) changeHealth(ctx context.Context, one *checked) (v verdicts, err error) {
	server := rand.IntN(members)
	var listed struct {
		Members []struct{ ID, Address string }
	}
	path := "pools/" + one.Pools[0].ID + "/members"
	if err := t.client.Get(ctx, path, &listed); err != nil {
		return v, err
	}
	for _, m := range listed.Members {
		if m.Address == address(server) {
			path += "/" + m.ID
		}
	}
	for _, change := range []struct {
		make   func() error
		health observe.HealthState
		status string
	}{
		{func() error { return t.servers.shut(server, one.port) }, observe.HealthUnhealthy, "ERROR"},
		{func() error { return t.servers.open(server, one.port, func() {}) }, observe.HealthHealthy, "ONLINE"},
	} {
		began := time.Now()
		if err := change.make(); err != nil {
			return v, err
		}
		if err := t.awaitVerdict(ctx, one, server, change.health); err != nil {
			return v, err
		}
		noticed := time.Now()
		if err := t.awaitStatus(ctx, path, change.status); err != nil {
			return v, err
		}
		v.Total = append(v.Total, bench.Milliseconds(time.Since(began)))
		v.Noticed = append(v.Noticed, bench.Milliseconds(noticed.Sub(began)))
		v.Reported = append(v.Reported, bench.Milliseconds(time.Since(noticed)))
	}
	return v, nil
}

// awaitVerdict waits for the balancer's verdict on a member.
func (t *testbed) awaitVerdict(ctx context.Context, one *checked, server int, health observe.HealthState) error {
	return bench.Await(ctx, healthTimeout, balancerPause, func(ctx context.Context) error {
		backends, err := netlab.Decode[[]observe.Backend](t.agent().Backends(ctx, one.service))
		for _, b := range backends {
			if b.Address.String() == address(server) && b.Health.State != health {
				err = fmt.Errorf("the balancer's verdict of %s port %d is %s", address(server), one.port, b.Health.State)
			}
		}
		return err
	})
}

// awaitStatus waits for a member's status in Octavia.
func (t *testbed) awaitStatus(ctx context.Context, path, status string) error {
	return bench.Await(ctx, healthTimeout, pollPause, func(ctx context.Context) error {
		var found struct {
			Member struct {
				Operating string `json:"operating_status"`
			}
		}
		err := t.client.Get(ctx, path, &found)
		if shown := found.Member.Operating; err == nil && shown != status {
			err = fmt.Errorf("status of %s in Octavia is %s", path, shown)
		}
		return err
	})
}

// add adds the results and the verdict.
func (v *verdicts) add(r *bench.Report, labels map[string]string) {
	r.AddDistribution("health_to_status_ms", "ms", v.Total, labels)
	r.AddDistribution("health_to_verdict_ms", "ms", v.Noticed, labels)
	r.AddDistribution("verdict_to_status_ms", "ms", v.Reported, labels)
	r.Judge("health_to_status_ms: Octavia shows 99 of 100 changes of health within so many milliseconds",
		bench.Documented, bench.AtMost(statusTarget), v.Total.Percentile(99))
}

// servers accept and close connections at ports of the members.
type servers struct {
	*testbed
	mu        sync.Mutex
	listeners map[string]net.Listener
}

// open has a server accept connections at a port, of which each calls arrive.
func (s *servers) open(server, port int, arrive func()) error {
	var listener net.Listener
	// Health checks are sent to the VIP, as the packets of clients.
	err := s.Do(serverName(server), func() (err error) {
		listener, err = net.Listen("tcp4", fmt.Sprint(":", port))
		return err
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.listeners[net.JoinHostPort(address(server), fmt.Sprint(port))] = listener
	s.mu.Unlock()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			arrive()
		}
	}()
	return nil
}

// shut has a server refuse connections at a port.
func (s *servers) shut(server, port int) error {
	at := net.JoinHostPort(address(server), fmt.Sprint(port))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listeners[at].Close()
}

func (s *servers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, listener := range s.listeners {
		_ = listener.Close()
	}
}
