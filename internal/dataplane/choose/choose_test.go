// SPDX-License-Identifier: Apache-2.0

package choose_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/choose"
	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fuzzrand"
)

// option is a data plane in memory that may refuse to open.
type option struct {
	*dataplanetest.Fake
	limits dataplane.Limits
	err    error
	used   bool
	opened int
}

func (o *option) choice() choose.Option {
	return choose.Option{
		Limits: o.limits,
		Open: func() (dataplane.DataPlane, error) {
			o.opened++
			return o, o.err
		},
		Used: func() bool { return o.used },
	}
}

// newOptions returns two data planes: the first has all but schedulers, the second has no
// sources and no mode but NAT and l2dsr.
func newOptions() (first, second *option) {
	first, second = &option{Fake: dataplanetest.NewFake(), limits: dataplanetest.Limits()}, &option{Fake: dataplanetest.NewFake(), limits: dataplanetest.Limits()}
	first.limits.Kind, first.limits.Schedulers = "first", nil
	second.limits.Kind, second.limits.Forwards = "second", []lb.Forward{lb.NAT, lb.L2DSR}
	second.limits.Properties = slices.DeleteFunc(second.limits.Properties, func(p string) bool { return p == "sources" })
	return first, second
}

func open(t testing.TB, options ...*option) *choose.Plane {
	t.Helper()
	var all []choose.Option
	for _, o := range options {
		all = append(all, o.choice())
	}
	p, err := choose.Open(slog.New(slog.DiscardHandler), all...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func vip(n int) lb.VIP {
	return lb.VIP{Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), Port: 80, Protocol: lb.TCP}
}

var client = netip.MustParseAddrPort("198.51.100.1:20000")

func service(n int, scheduler lb.Scheduler) *lb.Service {
	return &lb.Service{
		Name: fmt.Sprint("s", n), VIP: vip(n), Forward: lb.NAT, Scheduler: scheduler, MinHealthy: 1,
		Backends: []lb.Backend{{Address: netip.MustParseAddr("10.0.2.21"), Port: 80, Weight: 1}},
	}
}

// The suite of every data plane, with all services on the first one, and on the second.
func TestContract(t *testing.T) {
	for _, on := range []string{"first", "second"} {
		t.Run(on, func(t *testing.T) {
			dataplanetest.RunContract(t, dataplanetest.Harness{
				New: func(t *testing.T) dataplane.DataPlane {
					first, second := newOptions()
					first.limits.Schedulers, second.limits = dataplanetest.Limits().Schedulers, dataplanetest.Limits()
					if on == "second" {
						first.limits.Forwards = nil
					}
					for _, o := range []*option{first, second} {
						o.SetUnusable(netip.AddrPortFrom(dataplanetest.Unusable, 80), "no route")
					}
					return planes{open(t, first, second), first, second}
				},
				Limits: dataplanetest.Limits(), Forward: lb.L2DSR, MAC: func(netip.Addr) lb.MAC { return lb.MAC{2} },
				Probe: func(_ *testing.T, dp dataplane.DataPlane, vip lb.VIP, client netip.AddrPort, _ []lb.Backend) (lb.BackendID, bool) {
					return dp.(planes).probe(vip, client)
				},
			})
		})
	}
}

// planes is a Plane with its fakes.
type planes struct {
	*choose.Plane
	first, second *option
}

// probe sends a packet to the first data plane, which passes it on if it has no such service.
func (p planes) probe(vip lb.VIP, client netip.AddrPort) (lb.BackendID, bool) {
	if p.first.Has(vip) {
		return p.first.Probe(vip, client)
	}
	return p.second.Probe(vip, client)
}

// The second data plane is opened when a service needs it, which its error fails alone.
func TestOpenOnDemand(t *testing.T) {
	first, second := newOptions()
	second.err = errors.New("kernel without module")
	p := open(t, first, second)
	got, err := p.Update(t.Context(), service(1, lb.SchedulerMaglev))
	if err != nil || got.DataPlane != "first" || got.Reason != "" || second.opened != 0 {
		t.Fatalf("%+v (%v), the second was opened %d times", got, err, second.opened)
	}
	if err := p.Prune(t.Context(), []lb.VIP{vip(1)}); err != nil || second.opened != 0 {
		t.Fatalf("prune: %v, the second was opened %d times", err, second.opened)
	}
	const refused = "scheduler: scheduler lc can't be served by data plane first (it serves maglev)"
	want := "vip tcp 192.0.2.2:80: data plane second: kernel without module (" + refused + ")"
	if _, err := p.Update(t.Context(), service(2, lb.SchedulerLC)); fmt.Sprint(err) != want {
		t.Errorf("error %v\nwant %s", err, want)
	}
	second.err = nil
	if got, err = p.Update(t.Context(), service(2, lb.SchedulerLC)); err != nil || got.DataPlane != "second" || got.Reason != refused {
		t.Errorf("%+v (%v)", got, err)
	}
	kinds, missing := p.Kinds()
	if !slices.Equal(kinds, []string{"first", "second"}) || missing != nil {
		t.Errorf("kinds %v, missing %v", kinds, missing)
	}
}

// Without the first data plane services go to the second, and say why; but not if an earlier
// process has left services in the first.
func TestFirstUnavailable(t *testing.T) {
	first, second := newOptions()
	first.err = errors.New("no BPF")
	p := open(t, first, second)
	got, err := p.Update(t.Context(), service(1, lb.SchedulerMaglev))
	if err != nil || got.DataPlane != "second" || got.Reason != "data plane first: no BPF" {
		t.Errorf("%+v (%v)", got, err)
	}
	dsr := service(2, lb.SchedulerMaglev)
	dsr.Forward = lb.DSR
	want := "vip tcp 192.0.2.2:80: data plane first: no BPF; forward: forwarding mode dsr can't be served by data plane second (it serves nat, l2dsr): use nat, or data plane xdp"
	if _, err := p.Update(t.Context(), dsr); fmt.Sprint(err) != want {
		t.Errorf("error %v\nwant %s", err, want)
	}
	if err := p.Prune(t.Context(), nil); err != nil || first.opened != 1 {
		t.Errorf("prune: %v, the first was opened %d times", err, first.opened)
	}

	for _, change := range []func(first, second *option){
		func(first, _ *option) { first.used = true },
		func(_, second *option) { second.err = errors.New("no module") },
	} {
		first, second := newOptions()
		first.err = errors.New("no BPF")
		change(first, second)
		_, err := choose.Open(slog.New(slog.DiscardHandler), first.choice(), second.choice())
		if !errors.Is(err, first.err) || !first.used && !errors.Is(err, second.err) {
			t.Errorf("error %v", err)
		}
	}
}

// Prune deletes an earlier process's services from data planes that no longer have
// them.
func TestPruneAfterRestart(t *testing.T) {
	first, second := newOptions()
	for n := 1; n <= 3; n++ {
		if _, err := second.Update(t.Context(), service(n, lb.SchedulerLC)); err != nil {
			t.Fatal(err)
		}
	}
	second.used = true
	p := open(t, first, second)
	if _, err := p.Update(t.Context(), service(1, lb.SchedulerMaglev)); err != nil {
		t.Fatal(err)
	}
	// The update of 2 has failed, so it is kept where it is.
	if err := p.Prune(t.Context(), []lb.VIP{vip(1), vip(2)}); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int][2]bool{1: {true, false}, 2: {false, true}, 3: {false, false}} {
		if got := [2]bool{first.Has(vip(n)), second.Has(vip(n))}; got != want {
			t.Errorf("service %d is on the first and second: %v, want %v", n, got, want)
		}
	}
}

// Counters of a service begin at 0 on another data plane, and are added up while it is on both.
func TestCountersMove(t *testing.T) {
	first, second := newOptions()
	p := planes{open(t, first, second), first, second}
	packets := func() uint64 {
		t.Helper()
		stats, err := p.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := stats.Services[vip(1)]
		if share, _ := s.Backend(service(1, 0).Backends[0].ID()); share.Packets != s.Packets {
			t.Errorf("%d packets of the service, %d of its backend", s.Packets, share.Packets)
		}
		return s.Packets
	}
	probe := func(from *option) {
		t.Helper()
		if _, forwarded := from.Probe(vip(1), client); !forwarded {
			t.Fatal("a packet was not forwarded")
		}
	}
	if _, err := p.Update(t.Context(), service(1, lb.SchedulerMaglev)); err != nil {
		t.Fatal(err)
	}
	probe(first)
	failing := errors.New("failing")
	first.Fail = func(string, lb.VIP) error { return failing }
	if _, err := p.Update(t.Context(), service(1, lb.SchedulerLC)); !errors.Is(err, failing) {
		t.Fatal(err)
	}
	probe(second)
	if got := packets(); got != 2 {
		t.Errorf("%d packets on both data planes, want 2", got)
	}
	first.Fail = nil
	if _, err := p.Update(t.Context(), service(1, lb.SchedulerLC)); err != nil {
		t.Fatal(err)
	}
	probe(second)
	if got := packets(); got != 2 {
		t.Errorf("%d packets on the second data plane, want 2", got)
	}
}

// Random services move between the data planes, whose calls may fail: after an update each
// is on exactly one of them, and a packet is forwarded at every moment from the first
// successful update on.
func TestMovesDropNoPackets(t *testing.T) {
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	first, second := newOptions()
	p := planes{open(t, first, second), first, second}
	live := map[lb.VIP]bool{}
	failing := errors.New("failing")
	fail := func(op string, vip lb.VIP) error {
		for known := range live {
			if _, forwarded := p.probe(known, client); !forwarded {
				t.Errorf("before %s of %s: a packet to %s is not forwarded", op, vip, known)
			}
		}
		if random.IntN(5) == 0 {
			return failing
		}
		return nil
	}
	first.Fail, second.Fail = fail, fail
	schedulers := []lb.Scheduler{lb.SchedulerMaglev, lb.SchedulerLC, lb.SchedulerRR}
	moves, on := 0, map[lb.VIP]string{}
	const steps = 3000
	for range steps {
		svc := service(random.IntN(6), schedulers[random.IntN(len(schedulers))])
		if random.IntN(8) == 0 {
			delete(live, svc.VIP) // from now on it may have no data plane
			if err := p.Delete(t.Context(), svc.VIP); err == nil && (first.Has(svc.VIP) || second.Has(svc.VIP)) {
				t.Fatalf("%s is deleted and still on a data plane", svc.VIP)
			}
			delete(on, svc.VIP)
			continue
		}
		programmed, err := p.Update(t.Context(), svc)
		if err != nil {
			if !errors.Is(err, failing) {
				t.Fatal(err)
			}
			continue
		}
		live[svc.VIP] = true
		want := map[bool]string{true: "first", false: "second"}[svc.Scheduler == lb.SchedulerMaglev]
		if programmed.DataPlane != want || first.Has(svc.VIP) != (want == "first") || second.Has(svc.VIP) != (want == "second") {
			t.Fatalf("%s with %s is on %s (first %t, second %t), want %s", svc.VIP, svc.Scheduler, programmed.DataPlane, first.Has(svc.VIP), second.Has(svc.VIP), want)
		}
		if before := on[svc.VIP]; before != "" && before != want {
			moves++
		}
		on[svc.VIP] = want
	}
	if moves < 100 {
		t.Errorf("%d moves only", moves)
	}
	fuzzrand.Covered(t, 1, steps)
}

// Stale services of every data plane are delivered.
func TestStale(t *testing.T) {
	first, second := newOptions()
	p := open(t, first, second)
	for n, o := range []*option{first, second} {
		if _, err := p.Update(t.Context(), service(n, []lb.Scheduler{lb.SchedulerMaglev, lb.SchedulerLC}[n])); err != nil {
			t.Fatal(err)
		}
		o.MarkStale(vip(n))
		if got := <-p.Stale(); got != vip(n) {
			t.Errorf("%s is stale, want %s", got, vip(n))
		}
	}
}
