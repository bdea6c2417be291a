//go:build guest

// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
)

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// An agent that restarts, or ends between two calls, disturbs no connection and continues
// counters. It deletes its stale services, but no other program's service.
func TestRestart(t *testing.T) {
	w := newLab(t)
	first := w.open()
	svc, old := service(vip4, lb.TCP, lb.NAT), service(vip6, lb.TCP, lb.IPIP)
	w.update(first, svc, 2)
	w.update(first, old, 2)
	foreign := virtual{id: id{family: unix.AF_INET, protocol: lb.TCP, address: netip.MustParseAddrPort("10.1.1.1:443")}, scheduler: "rr"}
	w.within("lb", func() error { return first.kernel.ipvs.change(commandNewService, foreign) })
	one, two := w.must(svc.VIP), w.must(svc.VIP)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	w.stays(one)

	second := w.open()
	w.stays(two)
	w.eventually(func() error {
		stats, err := second.Stats(t.Context())
		if got := stats.Services[svc.VIP]; err != nil || got.NewFlows != 2 || len(got.Backends) != 2 || len(stats.Services) != 2 {
			return fmt.Errorf("after the restart: %+v: %w", stats, err)
		}
		return nil
	})
	w.update(second, svc, 2)
	taken := service(vip4, lb.TCP, lb.NAT)
	taken.Port = foreign.address.Port()
	for i := range taken.Backends {
		taken.Backends[i].Port = taken.Port
	}
	if _, err := second.Update(t.Context(), taken); err == nil || !strings.Contains(err.Error(), "another program's") {
		t.Errorf("the service of another program is taken: %v", err)
	}
	if err := second.Prune(t.Context(), []lb.VIP{svc.VIP}); err != nil {
		t.Fatal(err)
	}
	w.stays(one)
	w.stays(two)
	w.reach(svc.VIP, "server1", "server2")
	w.wantServices(second, idOf(svc.VIP, 0), foreign.id)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	w.within("lb", Remove)
	w.wantServices(w.open(), foreign.id)
}

// wantServices checks that IPVS has exactly these services.
func (w testLab) wantServices(p *Plane, want ...id) {
	w.t.Helper()
	w.within("lb", func() error {
		all, err := p.kernel.ipvs.virtuals()
		if err != nil {
			return err
		}
		got := map[id]bool{}
		for _, v := range all {
			got[v.id] = true
		}
		for _, i := range want {
			if !got[i] || len(got) != len(want) {
				return fmt.Errorf("IPVS has the services %v, want %v", got, want)
			}
		}
		return nil
	})
}

// The kernel has every field of the description, so that a second update finds nothing to
// change.
func TestIdempotent(t *testing.T) {
	w := newLab(t)
	p := w.open()
	svc := service(vip4, lb.TCP, lb.GUE)
	svc.Scheduler, svc.Affinity, svc.AffinityTimeout = lb.SchedulerMaglev, lb.AffinityClient, 90*time.Second
	svc.Backends[0].MaxConnections = 7
	w.update(p, svc, 2)
	w.within("lb", func() error {
		is, err := p.kernel.read(idOf(svc.VIP, 0))
		if err != nil {
			return err
		}
		want := describe([]*lb.Service{svc}, func(netip.Addr) bool { return false })
		if is == nil || is.virtual != want.virtual || len(is.servers) != 2 || is.servers[0] != want.servers[0] || is.servers[1] != want.servers[1] {
			return fmt.Errorf("IPVS has %+v, want %+v", is, want)
		}
		return nil
	})
}

// Settings, tables and local addresses are there as long as a service is, and as they were
// before afterwards.
func TestSettings(t *testing.T) {
	w := newLab(t)
	p := w.open()
	w.within("lb", func() error { return sysctls[0].write(0) })
	before := w.node(p)
	svc := service(vip4, lb.TCP, lb.NAT)
	w.update(p, svc, 2)
	w.within("lb", func() error {
		for _, s := range sysctls[:5] {
			if value, err := s.read(); err != nil || value != s.value {
				return fmt.Errorf("%s is %d: %w", s.path, value, err)
			}
		}
		return nil
	})
	other := service(vip6, lb.UDP, lb.NAT)
	w.update(p, other, 2)
	// Another agent puts them back.
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = w.open()
	if err := p.Delete(t.Context(), svc.VIP); err != nil {
		t.Fatal(err)
	}
	w.reach(other.VIP, "server1", "server2")
	if err := p.Delete(t.Context(), other.VIP); err != nil {
		t.Fatal(err)
	}
	if after := w.node(p); after != before {
		t.Errorf("the node was\n%s\nand is\n%s", before, after)
	}
}

// A node that doesn't forward isn't made a router for a service, unless that is allowed.
func TestForwardingNotAllowed(t *testing.T) {
	w := newLab(t)
	p := w.open()
	before := w.node(p)
	p.kernel.forwarding = false
	for _, vip := range []netip.Addr{vip4, vip6} {
		_, err := p.Update(t.Context(), service(vip, lb.TCP, lb.NAT))
		if err == nil || !strings.Contains(err.Error(), "forward") || !strings.Contains(err.Error(), "=1: it is 0, and the node's administrator has to set it") {
			t.Errorf("%s: error %v", vip, err)
		}
	}
	if after := w.node(p); after != before {
		t.Errorf("the node was\n%s\nand is\n%s", before, after)
	}
	svc := service(vip4, lb.TCP, lb.IPIP)
	w.update(p, svc, 2)
	w.reach(svc.VIP, "server1", "server2")
}

// In a pod /proc/sys is read-only: modes without translation work with a warning, nat once something else has set
// its sysctls, or the node's /proc/sys/net is mounted.
func TestReadOnlySysctls(t *testing.T) {
	w := newLab(t)
	readOnly, none := t.TempDir(), t.TempDir()
	mount := func(source string, flags uintptr) {
		if err := unix.Mount(source, readOnly, "", flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	mount("/proc/sys", unix.MS_BIND)
	mount("", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY)
	writable := procSys
	procSys, hostSys = readOnly, none
	t.Cleanup(func() {
		procSys, hostSys = writable, "/host/proc/sys"
		if err := unix.Unmount(readOnly, 0); err != nil {
			t.Error(err)
		}
	})
	p := w.open()
	for _, forward := range []lb.Forward{lb.IPIP, lb.L2DSR, lb.GUE} {
		svc := service(vip4, lb.TCP, forward)
		w.update(p, svc, 2)
		w.reach(svc.VIP, "server1", "server2")
	}
	svc := service(vip6, lb.TCP, lb.NAT)
	refused := func() {
		t.Helper()
		_, err := p.Update(t.Context(), svc)
		if err == nil || !strings.Contains(err.Error(), "nat needs net.ipv4.vs.conntrack=1: /proc/sys can't be written here: set it by securityContext.sysctls") {
			t.Errorf("nat: error %v", err)
		}
	}
	set := func(values ...string) { // as a kubelet does, or a plugin of the network
		w.within("lb", func() (err error) {
			for i, s := range []string{"net/ipv4/vs/conntrack", "net/ipv6/conf/all/forwarding"} {
				err = errors.Join(err, os.WriteFile(filepath.Join(writable, s), []byte(values[i]), 0))
			}
			return err
		})
	}
	refused()
	set("1", "1")
	w.update(p, svc, 2)
	w.reach(svc.VIP, "server1", "server2")
	// The last service leaves the settings as others have set them.
	for _, vip := range []lb.VIP{svc.VIP, service(vip4, lb.TCP, lb.GUE).VIP} {
		if err := p.Delete(t.Context(), vip); err != nil {
			t.Fatal(err)
		}
	}
	set("0", "0")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = w.open()
	refused()
	hostSys = writable
	w.update(p, svc, 2)
	w.reach(svc.VIP, "server1", "server2")
}

// The next agent deletes everything that an agent which crashed within an update
// leaves.
func TestCrash(t *testing.T) {
	w := newLab(t)
	svc := service(vip6, lb.TCP, lb.NAT)
	var before string
	for steps := range 4 {
		p := w.open()
		if steps == 0 {
			before = w.node(p)
		}
		want := describe([]*lb.Service{svc}, func(netip.Addr) bool { return false })
		for _, step := range []func() error{
			func() error { return p.own(svc) },
			func() error { return p.kernel.tune(svc) },
			func() error { return p.kernel.program(nil, want, false) },
		}[:steps] {
			w.within("lb", step)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		p = w.open()
		if err := p.Prune(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if after := w.node(p); after != before {
			t.Errorf("after %d steps the node was\n%s\nand is\n%s", steps, before, after)
		}
	}
}

// node returns the state of the balancer that the data plane may change.
func (w testLab) node(p *Plane) string {
	w.t.Helper()
	var text strings.Builder
	w.within("lb", func() error {
		for _, s := range sysctls {
			value, err := s.read()
			if err != nil {
				return err
			}
			fmt.Fprintln(&text, s.path, value)
		}
		tables, err := p.kernel.tables.conn.ListTables()
		fmt.Fprintln(&text, len(tables), "tables")
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
			if err != nil {
				return err
			}
			for _, r := range routes {
				fmt.Fprintln(&text, r.Type, r.Dst, r.Protocol)
			}
		}
		return err
	})
	return text.String()
}

// A service that another program flushes is reported, and restored by the next
// update.
func TestFlushed(t *testing.T) {
	w := newLab(t)
	p := w.open()
	svc := service(vip4, lb.TCP, lb.NAT)
	w.update(p, svc, 2)
	for name, flush := range map[string]func() error{
		"nft flush ruleset": func() error {
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			conn.FlushRuleset()
			return conn.Flush()
		},
		"ipvsadm -C": func() error {
			const commandFlush = 17
			_, err := p.kernel.ipvs.execute(commandFlush, mdnetlink.Acknowledge, func(*mdnetlink.AttributeEncoder) {})
			return err
		},
	} {
		w.within("lb", flush)
		if _, err := p.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.Stale():
		case <-time.After(await.Patience):
			t.Fatalf("%s is not noticed", name)
		}
		w.update(p, svc, 2)
		w.reach(svc.VIP, "server1", "server2")
	}
	if err := p.Delete(t.Context(), svc.VIP); err != nil {
		t.Fatal(err)
	}
}

// Services and local routes whose tables another program has flushed while no agent ran are still Fairlead's.
func TestFlushedWithoutAgent(t *testing.T) {
	w := newLab(t)
	p := w.open()
	for _, vip := range []netip.Addr{vip4, vip6} {
		w.update(p, service(vip, lb.TCP, lb.NAT), 2)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	w.within("lb", func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		conn.FlushRuleset()
		return conn.Flush()
	})
	p = w.open()
	svc := service(vip4, lb.TCP, lb.NAT)
	w.update(p, svc, 2)
	w.reach(svc.VIP, "server1", "server2")
	if err := p.Prune(t.Context(), []lb.VIP{svc.VIP}); err != nil {
		t.Fatal(err)
	}
	w.wantServices(p, idOf(svc.VIP, 0))
	w.within("lb", func() error {
		if local, err := p.kernel.localRoutes(); err != nil || len(local) != 1 || !local[vip4] {
			return fmt.Errorf("local routes %v, %w", local, err)
		}
		return nil
	})
}

// The node's programs don't answer at a VIP's other ports, at which clients get no answer at all.
func TestUnserved(t *testing.T) {
	w := newLab(t)
	p := w.open()
	for _, vip := range []netip.Addr{vip4, vip6} {
		svc := service(vip, lb.TCP, lb.NAT)
		w.update(p, svc, 2)
		var unserved lb.VIP
		w.within("lb", func() error {
			unserved = lb.VIP{Address: vip, Protocol: lb.TCP, Port: listen(t, vip)}
			return nil
		})
		if c, err := w.dial(unserved, refusal); err == nil || isRefused(err) {
			t.Errorf("%s: %v, %v, want no answer", unserved, c, err)
		}
		w.reach(svc.VIP, "server1", "server2")
	}
}

// A backend whose route goes and comes is reported.
func TestRoutes(t *testing.T) {
	w := newLab(t)
	p := w.open()
	svc := service(vip4, lb.TCP, lb.NAT)
	blocked := &netlink.Route{Dst: netlink.NewIPNet(svc.Backends[0].Address.AsSlice()), Type: unix.RTN_UNREACHABLE}
	w.update(p, svc, 2)
	for _, step := range []struct {
		change func() error
		inUse  int
	}{
		{func() error { return netlink.RouteAdd(blocked) }, 1},
		{func() error { return netlink.RouteDel(blocked) }, 2},
	} {
		w.within("lb", step.change)
		select {
		case vip := <-p.Stale():
			if vip != svc.VIP {
				t.Errorf("%s is stale", vip)
			}
		case <-time.After(await.Patience):
			t.Fatal("a changed route is not reported")
		}
		w.update(p, svc, step.inUse)
	}
}

// The IPVS service of the dissertation's figures 4.3 and 4.4, and two services that are
// scheduled as one.
func TestFirewallMark(t *testing.T) {
	w := newLab(t)
	p := w.open()
	svc := service(vip4, lb.TCP, lb.NAT)
	svc.FirewallMark, svc.Scheduler = 1, lb.SchedulerLC
	for i, b := range []string{"172.16.21.2", "172.16.80.2"} {
		svc.Backends[i].Address, svc.Backends[i].MaxConnections = netip.MustParseAddr(b), 20000
	}
	w.within("lb", func() error { return routeTo("172.16.0.0/16", "10.0.2.2") })
	w.update(p, svc, 2)
	const want = `FWM  00000001 lc 
  -> AC101502:0050      Masq    1      0          0         
  -> AC105002:0050      Masq    1      0          0         
`
	w.within("lb", func() error {
		text, err := os.ReadFile("/proc/thread-self/net/ip_vs")
		if !strings.HasSuffix(string(text), want) && !strings.HasSuffix(string(text), swapped(want)) {
			return fmt.Errorf("IPVS has\n%s\nwant\n%s (%w)", text, want, err)
		}
		return err
	})

	for _, vip := range []netip.Addr{vip4, vip6} {
		web := service(vip, lb.TCP, lb.NAT)
		web.FirewallMark = 2
		other := changed(web, func(s *lb.Service) {
			s.Port = ports[1]
			for i := range s.Backends {
				s.Backends[i].Port = ports[1]
			}
		})
		w.update(p, web, 2)
		w.update(p, other, 2)
		// Turns are taken by both.
		for range 3 {
			if a, b := w.must(web.VIP), w.must(other.VIP); a.server == b.server {
				t.Errorf("connections in turn to %s and %s have the same server %s", web.VIP, other.VIP, a.server)
			}
		}
		w.restartMarked(p, web, other)
		if err := p.Delete(t.Context(), web.VIP); err != nil {
			t.Fatal(err)
		}
		w.reach(other.VIP, "server1", "server2")
		apart := changed(web, func(s *lb.Service) { s.Scheduler = lb.SchedulerLC })
		if _, err := p.Update(t.Context(), apart); !errors.Is(err, lb.ErrMixedMark) {
			t.Errorf("a second scheduler for a firewall mark: %v", err)
		}
	}
}

// restartMarked checks that the servers of a service that a new process doesn't know yet keep
// their connections.
func (w testLab) restartMarked(p *Plane, web, other *lb.Service) {
	w.t.Helper()
	w.update(p, changed(other, func(s *lb.Service) { s.Backends = s.Backends[1:] }), 1)
	one, two := w.must(web.VIP), w.must(web.VIP)
	next := w.open()
	w.update(next, changed(other, func(s *lb.Service) { s.Backends = s.Backends[1:] }), 1)
	w.stays(one)
	w.stays(two)
	w.update(next, web, 2)
	w.update(next, other, 2)
	if err := next.Prune(w.t.Context(), []lb.VIP{web.VIP, other.VIP}); err == nil {
		w.stays(one)
	}
	if _, err := p.Update(w.t.Context(), other); err != nil {
		w.t.Error(err)
	}
}

// swapped are the lines with the last two exchanged: IPVS lists servers in no order.
func swapped(text string) string {
	lines := strings.SplitAfter(text, "\n")
	lines[1], lines[2] = lines[2], lines[1]
	return strings.Join(lines, "")
}

// Connections are listed with their clients and servers.
func TestFlows(t *testing.T) {
	w := newLab(t)
	p := w.open()
	for _, vip := range []netip.Addr{vip4, vip6} {
		svc := service(vip, lb.TCP, lb.NAT)
		w.update(p, svc, 2)
		one := w.must(svc.VIP)
		w.must(svc.VIP)
		flows, err := p.Flows(t.Context(), dataplane.FlowQuery{VIP: svc.VIP, Limit: 1})
		if err != nil || flows.Matching != 2 || len(flows.Flows) != 1 || !flows.Flows[0].Backend.IsValid() {
			t.Errorf("%s: flows %+v: %v", vip, flows, err)
		}
		client := netip.MustParseAddrPort(one.LocalAddr().String())
		flows, err = p.Flows(t.Context(), dataplane.FlowQuery{Client: netip.PrefixFrom(client.Addr(), client.Addr().BitLen()), Limit: 10})
		found := false
		for _, f := range flows.Flows {
			found = found || f.Client == client && f.VIP == svc.VIP && !f.Closing
		}
		if err != nil || !found {
			t.Errorf("%s: %s is not among %+v: %v", vip, client, flows, err)
		}
	}
}
