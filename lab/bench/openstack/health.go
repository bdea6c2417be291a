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
	mu sync.Mutex
	// total is from when a server closes or opens its port to Octavia's status. It is the sum of noticed, until the
	// balancer's verdict, and reported.
	total, noticed, reported bench.Runs
}

// measureHealth changes the health of members.
func (t *testbed) measureHealth(ctx context.Context) error {
	servers := newServers(t)
	defer servers.close()
	t.cfg.Log("%d load balancers with %d members each", t.cfg.Balancers, members)
	all, err := t.createChecked(ctx, servers)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, status := range []string{"OFFLINE", "ERROR", "DEGRADED"} {
		if err := t.awaitNone(ctx, "operating_status="+status); err != nil {
			return err
		}
	}
	labels := map[string]string{"loadbalancers": fmt.Sprint(t.cfg.Balancers), "members": fmt.Sprint(t.cfg.Balancers * members)}
	t.report.Add("all_shown", "s", bench.Runs{time.Since(began).Seconds()}, labels)
	if err := t.nameServices(ctx, all); err != nil {
		return err
	}
	t.cfg.Log("%d changes of health", t.cfg.Changes)
	var found verdicts
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(changers)
	for len(found.total) < t.cfg.Changes {
		for _, n := range rand.Perm(len(all))[:min(len(all), (t.cfg.Changes-len(found.total)+1)/2)] {
			group.Go(func() error { return t.changeHealth(ctx, all[n], servers, &found) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	found.add(t.report, labels)
	return nil
}

// createChecked makes a load balancer by Octavia's API, and copies of it (copy.go).
func (t *testbed) createChecked(ctx context.Context, servers *servers) ([]*checked, error) {
	pool := fields{"healthmonitor": fields{
		"type": "TCP", "delay": checkInterval, "timeout": 1, "max_retries": 1, "max_retries_down": 1,
	}}
	var at []fields
	for server := range members {
		at = append(at, t.member(server, checkedPort))
		for n := range t.cfg.Balancers {
			if err := servers.open(server, checkedPort+n); err != nil {
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
	if err := t.copy(ctx, made, t.cfg.Balancers-1); err != nil {
		return nil, err
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
func (t *testbed) changeHealth(ctx context.Context, one *checked, servers *servers, found *verdicts) error {
	server := rand.IntN(members)
	var listed struct {
		Members []struct{ ID, Address string }
	}
	path := "pools/" + one.Pools[0].ID + "/members"
	if err := t.client.Get(ctx, path, &listed); err != nil {
		return err
	}
	for _, m := range listed.Members {
		if m.Address == address(server) {
			path += "/" + m.ID
		}
	}
	began := time.Now()
	if err := servers.shut(server, one.port); err != nil {
		return err
	}
	if err := t.awaitVerdict(ctx, one, server, path, observe.HealthUnhealthy, "ERROR", began, found); err != nil {
		return err
	}
	began = time.Now()
	if err := servers.open(server, one.port); err != nil {
		return err
	}
	return t.awaitVerdict(ctx, one, server, path, observe.HealthHealthy, "ONLINE", began, found)
}

// awaitVerdict waits for the balancer's verdict, and then for Octavia's status.
func (t *testbed) awaitVerdict(
	ctx context.Context, one *checked, server int, path string, health observe.HealthState, status string,
	began time.Time, found *verdicts,
) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	for state := observe.HealthState(""); state != health; {
		backends, err := netlab.Decode[[]observe.Backend](t.agent().Backends(ctx, one.service))
		if err != nil {
			return err
		}
		for _, b := range backends {
			if b.Address.String() == address(server) {
				state = b.Health.State
			}
		}
		if err := netlab.Sleep(ctx, balancerPause); err != nil {
			return fmt.Errorf("the balancer's verdict of %s port %d is %s: %w", address(server), one.port, state, err)
		}
	}
	noticed := time.Now()
	for shown := ""; shown != status; {
		var found struct {
			Member struct {
				Operating string `json:"operating_status"`
			}
		}
		if err := t.client.Get(ctx, path, &found); err != nil {
			return err
		}
		shown = found.Member.Operating
		if err := netlab.Sleep(ctx, pollPause); err != nil {
			return fmt.Errorf("status of %s port %d in Octavia is %s: %w", address(server), one.port, shown, err)
		}
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	found.total = append(found.total, bench.Milliseconds(time.Since(began)))
	found.noticed = append(found.noticed, bench.Milliseconds(noticed.Sub(began)))
	found.reported = append(found.reported, bench.Milliseconds(time.Since(noticed)))
	return nil
}

// add adds the results and the verdict.
func (v *verdicts) add(r *bench.Report, labels map[string]string) {
	r.AddDistribution("health_to_status_ms", "ms", v.total, labels)
	r.AddDistribution("health_to_verdict_ms", "ms", v.noticed, labels)
	r.AddDistribution("verdict_to_status_ms", "ms", v.reported, labels)
	r.Judge("health_to_status_ms: Octavia shows 99 of 100 changes of health within so many milliseconds",
		bench.Documented, bench.AtMost(statusTarget), v.total.Percentile(99))
}

// servers accept and close connections at ports of the members.
type servers struct {
	*testbed
	mu        sync.Mutex
	listeners map[string]net.Listener
}

func newServers(t *testbed) *servers {
	return &servers{testbed: t, listeners: map[string]net.Listener{}}
}

// open has a server accept connections at a port.
func (s *servers) open(server, port int) error {
	at := net.JoinHostPort(address(server), fmt.Sprint(port))
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
	s.listeners[at] = listener
	s.mu.Unlock()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
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
