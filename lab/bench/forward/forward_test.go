// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane/ipvs"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// presentDevices are all that this machine has the programs for.
func presentDevices(t *testing.T) []device {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	return slices.DeleteFunc(devices(), func(d device) bool {
		err := netlab.CheckPrograms(d.programs...)
		if err != nil {
			t.Logf("without device %s: %v", d.name, err)
		}
		return err != nil || d.onRequest // test/guest/labs has a kernel for them
	})
}

func smallPlan(devices []device) plan {
	return plan{
		devices: devices, rounds: 2, warmUp: time.Millisecond, duration: time.Millisecond,
		cases: []conditions{
			{lb.UDP, establishedFlows, "64"}, {lb.TCP, establishedFlows, "1510"}, {lb.UDP, establishedFlows, mixSize}, {lb.UDP, newFlows, "64"},
		},
	}
}

// openTestbed is closed when the test ends.
func openTestbed(t *testing.T, devices []device) *testbed {
	t.Helper()
	b, err := newTestbed(t.Context(), netlab.Labs{Dir: t.TempDir()}, devices)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Every frame that is sent over any of the wires arrives, and Fairlead and the sink
// count the same.
func TestSmallRun(t *testing.T) {
	devices := presentDevices(t)
	p := smallPlan(devices)
	b := openTestbed(t, devices)
	for _, c := range p.cases {
		found, err := b.compare(t.Context(), c, p)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		for _, d := range devices {
			r := found[d.name]
			if low, _ := r.perSecond.Bounds(); len(r.perSecond) != p.rounds || low <= 0 {
				t.Errorf("%s, %s: %v frames a second", d.name, c, r.perSecond)
			}
		}
	}
	for _, w := range b.links {
		if w.plane != nil {
			wantCounted(t, w)
		}
	}
}

// wantCounted compares the counters of a Fairlead device with the sink's.
func wantCounted(t *testing.T, w *link) {
	t.Helper()
	received, err := w.sink.Received()
	if err != nil {
		t.Fatal(err)
	}
	stats, err := w.plane.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	forwarded := "forward_" + w.device.name
	if w.device.pods {
		forwarded = "forward_nat_handover"
	}
	for exit, packets := range stats.Exits {
		want := uint64(0)
		if exit == forwarded {
			want = received.Frames
		}
		if packets != want {
			t.Errorf("%s: exit %s has %d packets, want %d as the sink", w.device.name, exit, packets, want)
		}
	}
	perService := uint64(0)
	for _, s := range stats.Services {
		perService += s.Packets
	}
	if perService != received.Frames {
		t.Errorf("%s: services have %d packets, the sink %d", w.device.name, perService, received.Frames)
	}
}

// The NAT devices spread new flows over the backends; all of them are behind
// the same link, so the frames themselves have to be looked at elsewhere. Here
// the sizes show whether devices forward or answer.
func TestFramesKeepTheirSize(t *testing.T) {
	devices := slices.DeleteFunc(presentDevices(t), func(d device) bool {
		return d.name != l2dsrDevice && d.name != natDevice && d.name != iptablesDevice && d.name != nftablesDevice && d.name != reflectorDevice
	})
	b := openTestbed(t, devices)
	if _, err := b.compare(t.Context(), conditions{lb.UDP, establishedFlows, "512"}, smallPlan(devices)); err != nil {
		t.Fatal(err)
	}
	for _, w := range b.links {
		got, err := w.sink.Received()
		if err != nil || got.Frames == 0 || got.Bytes != 512*got.Frames {
			t.Errorf("%s: %d bytes in %d frames, %v, want 512 in each", w.device.name, got.Bytes, got.Frames, err)
		}
	}
}

func TestInterruptedRunLeavesNothing(t *testing.T) {
	devices := presentDevices(t)[:2]
	ctx, cancel := context.WithCancel(t.Context())
	labs := netlab.Labs{Dir: t.TempDir()}
	cfg := Config{Config: bench.Config{Labs: labs, Progress: func(line string) {
		if strings.HasPrefix(line, "1 of") {
			cancel()
		}
	}}}
	if _, err := measure(ctx, cfg, smallPlan(devices)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	left, err := labs.List()
	if err != nil || len(left) != 0 {
		t.Errorf("labs %v are left, %v", left, err)
	}
}

func TestPlans(t *testing.T) {
	for _, quick := range []bool{true, false} {
		p, err := newPlan(Config{Config: bench.Config{Quick: quick}})
		if err != nil {
			t.Fatal(err)
		}
		found := findings{}
		for _, c := range p.cases {
			found[c] = map[string]rates{}
			for i, d := range p.devices {
				found[c][d.name] = rates{perSecond: bench.Runs{1e6 - 1000*float64(i)}, lost: bench.Runs{0}}
			}
		}
		r := &bench.Report{Ratios: map[string]float64{}}
		if err := found.report(r); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"l2dsr_over_reflector_64", "l2dsr_over_reflector_128", "l2dsr_over_iptables_64", "l2dsr_over_iptables_64_new", "nat_over_iptables_64", "nat_over_iptables_64_new"} {
			if _, ok := r.Ratios[name]; !ok {
				t.Errorf("quick=%v: no ratio %s", quick, name)
			}
		}
		if len(r.Verdicts) != len(r.Ratios) {
			t.Errorf("quick=%v: %d verdicts on %d ratios", quick, len(r.Verdicts), len(r.Ratios))
		}
	}
}

func TestPlanOfChosenDevicesAndSizes(t *testing.T) {
	p, err := newPlan(Config{Devices: []string{"l2dsr", "reflector"}, Sizes: []string{"256"}})
	if err != nil || len(p.devices) != 2 || p.devices[0].name != "l2dsr" || len(p.cases) != 1 || p.cases[0].size != "256" {
		t.Errorf("%d devices, cases %v, %v", len(p.devices), p.cases, err)
	}
	p, err = newPlan(Config{Sizes: []string{"64"}, Established: true})
	if err != nil || !slices.Equal(p.cases, []conditions{small}) {
		t.Errorf("cases of established flows: %v, %v", p.cases, err)
	}
	for _, cfg := range []Config{{Devices: []string{"toaster"}}, {Sizes: []string{"59"}}, {Sizes: []string{"1511"}}, {Sizes: []string{"big"}}} {
		if _, err := newPlan(cfg); err == nil {
			t.Errorf("%v %v: no error", cfg.Devices, cfg.Sizes)
		}
	}
}

// IPVS has to be named; in a kernel without it that is an error with the module's name.
func TestIPVSOnRequest(t *testing.T) {
	p, err := newPlan(Config{})
	if err != nil || slices.ContainsFunc(p.devices, func(d device) bool { return d.onRequest }) {
		t.Errorf("devices without request: %v, %v", deviceNames(p.devices), err)
	}
	p, err = newPlan(Config{Devices: []string{ipvsL2DSRDevice}})
	if err != nil || len(p.devices) != 1 {
		t.Fatalf("devices on request: %v, %v", deviceNames(p.devices), err)
	}
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	labs := netlab.Labs{Dir: t.TempDir()}
	b, err := newTestbed(t.Context(), labs, p.devices)
	if err == nil {
		if err := b.close(); err != nil {
			t.Error(err)
		}
		t.Skip("this kernel has IPVS: test/guest/labs measures it")
	}
	if _, missing := errors.AsType[*ipvs.MissingError](err); !missing || !strings.Contains(err.Error(), "device ipvs-l2dsr: kernel module ip_vs") {
		t.Errorf("error %v", err)
	}
	if left, err := labs.List(); err != nil || len(left) != 0 {
		t.Errorf("labs %v are left, %v", left, err)
	}
}

// Ratios to IPVS have no target: IPVS's figures are from a guest.
func TestIPVSRatios(t *testing.T) {
	f := findings{small: {
		l2dsrDevice: {perSecond: bench.Runs{4}}, ipvsL2DSRDevice: {perSecond: bench.Runs{2}}, nftablesDevice: {perSecond: bench.Runs{1}},
	}}
	r := &bench.Report{Ratios: map[string]float64{}}
	if err := f.report(r); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"l2dsr_over_ipvs_l2dsr_64": 2, "ipvs_l2dsr_over_nftables_64": 2}
	if !maps.Equal(r.Ratios, want) || len(r.Verdicts) != 0 {
		t.Errorf("ratios %v, verdicts %v, want %v alone", r.Ratios, r.Verdicts, want)
	}
}

func TestEveryForwardingModeIsADevice(t *testing.T) {
	names := deviceNames(devices())
	for _, mode := range xdp.Limits().Forwards {
		if mode != lb.DSR && !slices.Contains(names, mode.String()) {
			t.Errorf("no device for mode %s", mode)
		}
	}
}

func TestRaise(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sysctl")
	for _, c := range []struct {
		was           string
		wanted        int
		old, is, fail string
	}{
		{was: "100\n", wanted: 200, old: "100", is: "200"},
		{was: "300\n", wanted: 200, is: "300\n"},
		{was: "many\n", wanted: 200, is: "many\n", fail: "invalid syntax"},
	} {
		if err := os.WriteFile(path, []byte(c.was), 0o600); err != nil {
			t.Fatal(err)
		}
		old, err := raise(path, c.wanted)
		is, readErr := os.ReadFile(path)
		if old != c.old || string(is) != c.is || readErr != nil || (err == nil) != (c.fail == "") {
			t.Errorf("%q raised to %d: was %q, is %q, %v", c.was, c.wanted, old, is, err)
		}
	}
}

// 5 million packets a second without a device, 4 million with one: 50 ns more.
func TestDeviceCostSubtractsSenderAndSink(t *testing.T) {
	f := findings{small: {noDevice: {perSecond: bench.Runs{5e6}}, l2dsrDevice: {perSecond: bench.Runs{4e6}}}}
	if got := f.deviceCost(small, l2dsrDevice); len(got) != 1 || got[0] < 49.9 || got[0] > 50.1 {
		t.Errorf("cost %v, want 50", got)
	}
	if got := f.deviceCost(small, iptablesDevice); got != nil {
		t.Errorf("cost %v of a device that wasn't measured", got)
	}
}
