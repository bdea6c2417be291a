// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/openstack"
	"fairlead.io/fairlead/test/e2e/harness"
	"fairlead.io/fairlead/test/fuzzrand"
)

// pendingLimit is how long an object may be pending after all services are back.
const pendingLimit = time.Minute

const (
	// callers make calls in all, at the same time.
	callers = 3
	calls   = 300
)

// process is one that is killed.
type process struct{ host, name string }

var (
	octaviaAPI = process{openstack.Controller, openstack.OctaviaAPI}
	apiServer  = process{openstack.Controller, openstack.APIServer}
	agent1     = process{openstack.Controller, openstack.DriverAgents[0]}
	agent2     = process{openstack.Controller, openstack.DriverAgents[1]}
	balancer1  = process{"lb1", "agent"}
	balancer2  = process{"lb2", "agent"}
)

// kills are the processes that are killed together, one group after the other.
var kills = [][]process{
	{octaviaAPI}, {agent1}, {agent2}, {apiServer}, {balancer1}, {agent1, agent2}, {octaviaAPI, apiServer},
	{octaviaAPI, agent1, agent2, apiServer, balancer1, balancer2},
}

// checkKills kills and restarts services, in turn and together, while clients make random calls and repeat those that
// fail. Then nothing is pending, all places have the same load balancers, and no connection to "web" has ended.
func (c *cloud) checkKills(t *testing.T) {
	t.Helper()
	seed := fuzzrand.Seed(t)
	connections := c.holdConnections(t)
	var answered, repeated atomic.Int64
	stop := make(chan struct{})
	group, ctx := errgroup.WithContext(t.Context())
	for n := range callers {
		r := &caller{
			cloud: c, random: rand.New(rand.NewPCG(seed, uint64(n))), name: fmt.Sprint("history", n),
			answered: &answered, repeated: &repeated,
		}
		group.Go(func() error { return r.run(ctx, calls, stop) })
	}
	for n, together := range kills {
		at := int64(calls * (n + 1) / (len(kills) + 1))
		for answered.Load() < at && ctx.Err() == nil {
			_ = netlab.Sleep(ctx, 50*time.Millisecond)
		}
		if ctx.Err() != nil {
			break
		}
		c.killTogether(t, together)
		t.Logf("%v are back after %d calls", together, answered.Load())
	}
	close(stop)
	if err := group.Wait(); err != nil {
		t.Fatalf("FAIRLEAD_SEED=%d: %v", seed, err)
	}
	t.Logf("%d calls, of which %d were repeated", answered.Load(), repeated.Load())
	fuzzrand.Covered(t, callers, int(answered.Load()))
	c.awaitSettled(t)
	c.checkSync(t)
	c.checkAgreement(t)
	c.deleteHistories(t)
	connections.check(t)
}

// killTogether kills processes, restarts them, and waits until they answer.
func (c *cloud) killTogether(t *testing.T, together []process) {
	t.Helper()
	for _, p := range together {
		if err := c.Kill(t.Context(), p.host, p.name); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range together {
		if err := c.Restart(t.Context(), p.host, p.name); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range together {
		if p.host != openstack.Controller {
			c.awaitBalancer(t, p.host)
		} else if err := c.plane.Await(t.Context(), p.name); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitBalancer waits until a balancer follows the API server again.
func (c *cloud) awaitBalancer(t *testing.T, name string) {
	t.Helper()
	h := c.State().Host(name)
	harness.Until(t, name+" follows the API server", func() bool {
		status, err := netlab.Decode[observe.Status](control.Dial(h.Socket).Status(t.Context()))
		return err == nil && status.APIServer.Reachable
	})
}

// awaitSettled waits until all objects are active.
func (c *cloud) awaitSettled(t *testing.T) {
	t.Helper()
	began := time.Now()
	var bad []string
	settled := c.within(t, pendingLimit, func() bool {
		bad = nil
		paths := []string{"loadbalancers", "listeners", "pools", "healthmonitors"}
		for len(paths) > 0 {
			kind := paths[0][strings.LastIndex(paths[0], "/")+1:]
			found := map[string][]struct {
				ID, Name     string
				Provisioning string `json:"provisioning_status"`
			}{}
			if err := c.client.Get(t.Context(), paths[0], &found); err != nil {
				bad = append(bad, err.Error())
			}
			for _, part := range found[kind] {
				if part.Provisioning != "ACTIVE" {
					bad = append(bad, kind+" "+part.Name+": "+part.Provisioning)
				}
				if kind == "pools" {
					paths = append(paths, "pools/"+part.ID+"/members")
				}
			}
			paths = paths[1:]
		}
		return len(bad) == 0
	})
	if !settled {
		t.Fatalf("after %s: %q", pendingLimit, bad)
	}
	t.Logf("nothing is pending %s after the last call", time.Since(began).Round(time.Second))
}

// within waits for a condition of Octavia, which is busy with each request.
func (c *cloud) within(t *testing.T, limit time.Duration, holds func() bool) bool {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); _ = netlab.Sleep(t.Context(), 100*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// checkSync checks that the LB API has all that Octavia has. Only load balancers can be left that octavia-api was creating
// when it was killed: the command deletes them.
func (c *cloud) checkSync(t *testing.T) {
	t.Helper()
	last := ""
	for _, args := range [][]string{nil, {"--yes"}, nil} {
		lines, err := c.plane.Sync(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("fairlead-octavia-sync %s: %q", args, lines)
		for line := range strings.Lines(lines) {
			if !strings.HasSuffix(line, ": is not in Octavia\n") && !strings.HasSuffix(line, ": deleted\n") {
				t.Errorf("fairlead-octavia-sync %s: %s", args, line)
			}
		}
		last = lines
	}
	if last != "" {
		t.Errorf("fairlead-octavia-sync finds after its own changes: %s", last)
	}
}

// octavia has Octavia's load balancers.
type octavia struct {
	LoadBalancers []struct {
		ID         string
		Enabled    bool       `json:"admin_state_up"`
		VIP        netip.Addr `json:"vip_address"`
		Additional []struct {
			Address netip.Addr `json:"ip_address"`
		} `json:"additional_vips"`
	}
	Listeners []struct {
		ID, Protocol  string
		Enabled       bool   `json:"admin_state_up"`
		Port          uint16 `json:"protocol_port"`
		Pool          string `json:"default_pool_id"`
		LoadBalancers []struct{ ID string }
	}
	Pools []struct {
		ID      string
		Enabled bool `json:"admin_state_up"`
	}
	// members are by pools.
	members map[string][]octaviaMember
}

type octaviaMember struct {
	Address   netip.Addr
	Port      uint16 `json:"protocol_port"`
	Weight    int
	Enabled   bool   `json:"admin_state_up"`
	Operating string `json:"operating_status"`
}

// readOctavia reads Octavia's load balancers.
func (c *cloud) readOctavia(ctx context.Context) (*octavia, error) {
	o := &octavia{members: map[string][]octaviaMember{}}
	for _, kind := range []string{"loadbalancers", "listeners", "pools"} {
		if err := c.client.Get(ctx, kind, o); err != nil {
			return nil, err
		}
	}
	for _, pool := range o.Pools {
		var found struct{ Members []octaviaMember }
		if err := c.client.Get(ctx, "pools/"+pool.ID+"/members", &found); err != nil {
			return nil, err
		}
		o.members[pool.ID] = found.Members
	}
	return o, nil
}

// backends are the backends that a balancer should have, by VIP: address, port and weight.
func (o *octavia) backends() map[string][]string {
	vips, pools := map[string][]netip.Addr{}, map[string]bool{}
	for _, b := range o.LoadBalancers {
		if !b.Enabled {
			continue
		}
		vips[b.ID] = []netip.Addr{b.VIP}
		for _, more := range b.Additional {
			vips[b.ID] = append(vips[b.ID], more.Address)
		}
	}
	for _, pool := range o.Pools {
		pools[pool.ID] = pool.Enabled
	}
	all := map[string][]string{}
	for _, listener := range o.Listeners {
		for _, vip := range vips[listener.LoadBalancers[0].ID] {
			for _, m := range o.members[listener.Pool] {
				if listener.Enabled && pools[listener.Pool] && m.Enabled {
					name := fmt.Sprintf("%s/%s", netip.AddrPortFrom(vip, listener.Port), strings.ToLower(listener.Protocol))
					all[name] = append(all[name], fmt.Sprintf("%s weight %d", netip.AddrPortFrom(m.Address, m.Port), m.Weight))
				}
			}
		}
	}
	for _, backends := range all {
		slices.Sort(backends)
	}
	return all
}

// programmed are the backends that a balancer has, by VIP.
func programmed(ctx context.Context, h *netlab.HostState) (map[string][]string, error) {
	backends, err := netlab.Decode[[]observe.Backend](control.Dial(h.Socket).Backends(ctx, ""))
	all := map[string][]string{}
	for _, b := range backends {
		name := fmt.Sprintf("%s/%s", netip.AddrPortFrom(b.VIP.Address, b.VIP.Port), b.VIP.Protocol)
		all[name] = append(all[name], fmt.Sprintf("%s weight %d", netip.AddrPortFrom(b.Address, b.Port), b.Weight))
	}
	for _, backends := range all {
		slices.Sort(backends)
	}
	return all, err
}

// checkAgreement checks that balancers serve all that Octavia has, and that Octavia shows the members' statuses of the LB
// API: none that was reported late has replaced a newer one.
func (c *cloud) checkAgreement(t *testing.T) {
	t.Helper()
	var differ error
	agree := func() bool {
		var o *octavia
		if o, differ = c.readOctavia(t.Context()); differ != nil {
			return false
		}
		want := o.backends()
		for _, h := range c.Hosts(netlab.Balancer) {
			got, err := programmed(t.Context(), &h)
			if err == nil && !maps.EqualFunc(got, want, slices.Equal) {
				err = fmt.Errorf("%s has\n%v\nOctavia has\n%v", h.Name, got, want)
			}
			differ = errors.Join(differ, err)
		}
		differ = errors.Join(differ, c.compareStatuses(t, o))
		return differ == nil
	}
	if !c.within(t, pendingLimit, agree) {
		t.Fatal(differ)
	}
}

// compareStatuses compares the operating statuses of members with the LB API's.
func (c *cloud) compareStatuses(t *testing.T, o *octavia) error {
	t.Helper()
	var answer struct {
		Items []struct {
			Status struct {
				Pools []struct {
					Name    string
					Members []struct{ Name, OperatingStatus string }
				}
			}
		}
	}
	text := c.Run(t, openstack.Controller, "sh", "-c",
		`curl -s --cacert server.crt -H "Authorization: Bearer $(cat octavia.token)" https://`+openstack.APIAddress+"/v1/statuses")
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return err
	}
	// Several VIPs have a status each, of which Octavia shows the worst one.
	words := map[string][]string{}
	for _, item := range answer.Items {
		for _, pool := range item.Status.Pools {
			for _, m := range pool.Members {
				words[pool.Name+" "+m.Name] = append(words[pool.Name+" "+m.Name], m.OperatingStatus)
			}
		}
	}
	var differ error
	for _, pool := range o.Pools {
		for _, m := range o.members[pool.ID] {
			name := pool.ID + " " + netip.AddrPortFrom(m.Address, m.Port).String()
			shown := slices.Contains(words[name], m.Operating)
			if !m.Enabled || !pool.Enabled {
				shown = m.Operating == "OFFLINE"
			}
			if !shown {
				differ = errors.Join(differ, fmt.Errorf("member %s: Octavia has %s, the LB API %v", name, m.Operating, words[name]))
			}
		}
	}
	return differ
}

// deleteHistories deletes the load balancers of the callers, and ports of Neutron that a killed octavia-api has left.
func (c *cloud) deleteHistories(t *testing.T) {
	t.Helper()
	var all struct{ LoadBalancers []part }
	if err := c.client.Get(t.Context(), "loadbalancers", &all); err != nil {
		t.Fatal(err)
	}
	for _, b := range all.LoadBalancers {
		if !strings.HasPrefix(b.Name, "history") {
			continue
		}
		status, answer, err := c.client.Call(t.Context(), "DELETE", "loadbalancers/"+b.ID+"?cascade=true", nil)
		if err != nil || status/100 != 2 {
			t.Fatalf("%d %s: %v", status, answer, err)
		}
	}
	isHistory := func(b part) bool { return strings.HasPrefix(b.Name, "history") }
	deleted := c.within(t, pendingLimit, func() bool {
		err := c.client.Get(t.Context(), "loadbalancers", &all)
		return err == nil && !slices.ContainsFunc(all.LoadBalancers, isHistory)
	})
	if !deleted {
		t.Errorf("not deleted after %s: %v", pendingLimit, all)
	}
	for line := range strings.Lines(c.openstackAs(t, "admin", "port list --network vips -f value -c id -c name")) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		known := slices.ContainsFunc(all.LoadBalancers, func(b part) bool { return strings.Contains(name, b.ID) })
		if id != "" && !known {
			t.Logf("octavia-api has left port %s", name)
			c.openstackAs(t, "admin", "port delete "+id)
		}
	}
}

// connections are established ones that are used until they are checked.
type connections struct {
	stop  atomic.Bool
	ended chan error
	count int
}

// holdConnections opens connections to "web", which are used all the time.
func (c *cloud) holdConnections(t *testing.T) *connections {
	t.Helper()
	held := &connections{ended: make(chan error), count: 8}
	for i := range held.count {
		conn, err := c.Dial(t.Context(), "client", "tcp", net.JoinHostPort(c.web[i%len(c.web)].String(), "80"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go func() { held.ended <- held.use(harness.NewClient(conn)) }()
	}
	return held
}

// use sends requests until the connections are checked.
func (c *connections) use(client *harness.Client) error {
	for !c.stop.Load() {
		if err := client.Query(); err != nil {
			return err
		}
		_ = netlab.Sleep(context.Background(), harness.Pace)
	}
	return nil
}

// check ends the requests; none may have failed.
func (c *connections) check(t *testing.T) {
	t.Helper()
	c.stop.Store(true)
	var all []error
	for range c.count {
		all = append(all, <-c.ended)
	}
	if err := errors.Join(all...); err != nil {
		t.Errorf("established connections: %v", err)
	}
}

// checkTakeOver starts the second driver agent, and stalls and kills each of both. The other one reports then, and a
// stalled one that continues replaces no newer status.
func (c *cloud) checkTakeOver(t *testing.T) {
	t.Helper()
	if err := c.plane.StartDriverAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	signal := func(p process, s unix.Signal) {
		if err := c.Signal(t.Context(), p.host, p.name, s); err != nil {
			t.Fatal(err)
		}
	}
	signal(agent1, unix.SIGSTOP)
	killed := c.KillServer(t, "server1")
	c.awaitTree(t, serverDead)
	t.Logf("the second agent reports a dead member %s after the first one has stalled", time.Since(killed).Round(time.Second))
	c.StartServer(t, "server1")
	c.awaitTree(t, allOnline)
	refused := c.refusals(t)
	signal(agent1, unix.SIGCONT)
	harness.Until(t, "the first agent stands by", func() bool { return c.refusals(t) > refused })
	c.awaitTree(t, allOnline)

	if err := c.Kill(t.Context(), agent2.host, agent2.name); err != nil {
		t.Fatal(err)
	}
	killed = c.KillServer(t, "server1")
	c.awaitTree(t, serverDead)
	t.Logf("the first agent reports a dead member %s after the second one has been killed", time.Since(killed).Round(time.Second))
	c.StartServer(t, "server1")
	c.awaitTree(t, allOnline)
	if err := c.Restart(t.Context(), agent2.host, agent2.name); err != nil {
		t.Fatal(err)
	}
	// A restarted agent has the lease that it had before.
	c.killTogether(t, []process{agent1})
	killed = c.KillServer(t, "server1")
	c.awaitTree(t, serverDead)
	t.Logf("a restarted agent reports a dead member after %s", time.Since(killed).Round(time.Second))
	c.StartServer(t, "server1")
	c.awaitTree(t, allOnline)
}

// refusals is how many requests of agents that stand by the API server has answered.
func (c *cloud) refusals(t *testing.T) (count int) {
	t.Helper()
	page, err := c.Get(t.Context(), openstack.Controller, "http://"+openstack.APIServerPage+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "fairlead_apiserver_requests_total{") && strings.Contains(line, `code="409"`) {
			_, number, _ := strings.Cut(line, "} ")
			_, _ = fmt.Sscan(number, &count)
		}
	}
	return count
}
