// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"maps"
	"math"
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
		cases: [][]conditions{
			{small, smallOnTwo}, {{protocol: lb.TCP, flows: establishedFlows, size: "1510"}}, {smallAndNew},
			{scenario(lb.UDP, "imix"), scenario(lb.TCP, "imix-rate")},
		},
	}
}

// measure runs a plan. It calls look for each device before the labs are removed.
func measure(t *testing.T, p plan, look func(*testbed)) {
	t.Helper()
	cfg := Config{Config: bench.Config{Labs: netlab.Labs{Dir: t.TempDir()}}}
	b, testbeds := p.bench(cfg)
	remove := b.Remove
	b.Remove = func(ctx context.Context) error {
		for _, one := range testbeds {
			look(one)
		}
		return remove(ctx)
	}
	b.Report = func(_ *bench.Report, found bench.Found[rate]) error {
		f := findings{p, found}
		for _, c := range slices.Concat(p.cases...) {
			for _, d := range p.devices {
				runs := f.rate(c, d.name)
				if low, _ := runs.Bounds(); d.in(c) && (len(runs) != p.rounds || low <= 0) {
					t.Errorf("%s, %s: %v frames a second", d.name, c, runs)
				}
			}
		}
		return nil
	}
	if _, err := bench.Run(t.Context(), cfg.Config, b); err != nil {
		t.Fatal(err)
	}
}

// Every frame that is sent over any of the wires arrives, and Fairlead and the sink
// count the same.
func TestSmallRun(t *testing.T) {
	measure(t, smallPlan(presentDevices(t)), func(w *testbed) {
		if w.plane != nil {
			wantCounted(t, w)
		}
	})
}

// wantCounted compares the counters of a Fairlead device with the sink's.
func wantCounted(t *testing.T, w *testbed) {
	t.Helper()
	received, err := w.sink.Received()
	if err != nil {
		t.Fatal(err)
	}
	stats, err := w.plane.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mode, _, _ := strings.Cut(w.device.name, "-")
	forwarded := "forward_" + mode
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
// the sizes show whether devices forward or answer. They lack the frame check sequence, and tagged
// ones have four bytes more.
func TestFramesKeepTheirSize(t *testing.T) {
	sizes := map[string]uint64{l2dsrDevice: 508, natDevice: 508, iptablesDevice: 508, nftablesDevice: 508, scenarioB: 512, iptables128: 508}
	p := smallPlan(slices.DeleteFunc(presentDevices(t), func(d device) bool { return sizes[d.name] == 0 }))
	p.cases = [][]conditions{{{protocol: lb.UDP, flows: establishedFlows, size: "512"}}, {scenario(lb.UDP, "512")}}
	measure(t, p, func(w *testbed) {
		got, err := w.sink.Received()
		if want := sizes[w.device.name]; err != nil || got.Frames == 0 || got.Bytes != want*got.Frames {
			t.Errorf("%s: %d bytes in %d frames, %v, want %d in each", w.device.name, got.Bytes, got.Frames, err, want)
		}
	})
}

func TestInterruptedRunLeavesNothing(t *testing.T) {
	devices := presentDevices(t)[:2]
	ctx, cancel := context.WithCancel(t.Context())
	labs := netlab.Labs{Dir: t.TempDir()}
	cfg := Config{Config: bench.Config{Labs: labs, Progress: func(line string) {
		if strings.Contains(line, "round 1 of") {
			cancel()
		}
	}}}
	b, _ := smallPlan(devices).bench(cfg)
	if _, err := bench.Run(ctx, cfg.Config, b); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	left, err := labs.List()
	if err != nil || len(left) != 0 {
		t.Errorf("labs %v are left, %v", left, err)
	}
}

func TestPlans(t *testing.T) {
	for _, quick := range []bool{true, false} {
		devices, err := chooseDevices(nil)
		if err != nil {
			t.Fatal(err)
		}
		p, found := newPlan(quick, devices), bench.Found[rate]{}
		b, _ := p.bench(Config{})
		for _, g := range b.Groups {
			for _, cell := range g.Cells {
				if found[cell.Name] != nil {
					t.Errorf("two cells are called %s", cell.Name)
				}
				found[cell.Name] = []rate{{PerSecond: 1e6 - 1000*float64(len(found))}}
			}
		}
		r := &bench.Report{Ratios: map[string]float64{}}
		if err := (findings{p, found}).report(r); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{
			"l2dsr_over_reflector_64", "l2dsr_over_reflector_128", "l2dsr_over_iptables_64", "l2dsr_over_iptables_64_new", "nat_over_iptables_64",
			"nat_over_iptables_64_new", "scenario_b_over_a_64", "scenario_a_udp_over_syn_64", "scenario_b_over_iptables_64", "scenario_a_over_reflector_64",
		} {
			if _, ok := r.Ratios[name]; !ok {
				t.Errorf("quick=%v: no ratio %s", quick, name)
			}
		}
		claims := map[string]bool{}
		for _, v := range r.Verdicts {
			if claims[v.Claim+v.Target] {
				t.Errorf("quick=%v: two verdicts on %s", quick, v.Claim)
			}
			claims[v.Claim+v.Target] = true
		}
	}
}

// A scenario's servers have one VIP each, which all have nearly as many, and a VLAN each.
func TestScenarioB(t *testing.T) {
	devices, err := chooseDevices([]string{scenarioB})
	if err != nil {
		t.Fatal(err)
	}
	vips, servers, counts := map[lb.VIP]bool{}, map[lb.Backend]bool{}, map[int]int{}
	for i := range 128 {
		vip, backends := devices[0].vip(lb.UDP, i), devices[0].backends(lb.L2DSR, i)
		vips[vip] = true
		counts[len(backends)]++
		for _, b := range backends {
			servers[lb.Backend{MAC: b.MAC, Segment: b.Segment}] = true
		}
	}
	if len(vips) != 128 || len(servers) != 4000 || counts[32] != 32 || counts[31] != 96 {
		t.Errorf("%d VIPs, %d servers, VIPs by servers %v", len(vips), len(servers), counts)
	}
}

// A frame of 64 bytes without a tag has 84 on the wire, with one 88 (Kakao paper, table 2: 35.41
// million packets are 19.26 and 24.93 Gbit/s).
func TestRates(t *testing.T) {
	devices, err := chooseDevices([]string{noDevice})
	if err != nil {
		t.Fatal(err)
	}
	c := scenario(lb.UDP, "64")
	f := findings{plan{devices: devices, cases: [][]conditions{{c}}}, bench.Found[rate]{c.cell(noDevice): {{PerSecond: 35.41e6}}}}
	r := &bench.Report{Ratios: map[string]float64{}}
	if err := f.report(r); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"layer2_rate": 19.26, "layer1_rate": 24.93} {
		i := slices.IndexFunc(r.Results, func(r bench.Result) bool { return r.Name == name })
		if i < 0 || math.Abs(r.Results[i].Median-want) > 0.01 {
			t.Errorf("results %v, want %s %v", r.Results, name, want)
		}
	}
}

func TestChosenDevices(t *testing.T) {
	devices, err := chooseDevices([]string{"l2dsr", "reflector"})
	if err != nil || !slices.Equal(deviceNames(devices), []string{"l2dsr", "reflector"}) {
		t.Errorf("devices %v, %v", deviceNames(devices), err)
	}
	if err := (&Config{Devices: []string{"toaster"}}).Check(); err == nil {
		t.Error("no error for a device that there isn't")
	}
}

// IPVS has to be named; in a kernel without it that is an error with the module's name.
func TestIPVSOnRequest(t *testing.T) {
	usual, err := chooseDevices(nil)
	if err != nil || slices.ContainsFunc(usual, func(d device) bool { return d.onRequest }) {
		t.Errorf("devices without request: %v, %v", deviceNames(usual), err)
	}
	devices, err := chooseDevices([]string{ipvsL2DSRDevice})
	if err != nil || len(devices) != 1 {
		t.Fatalf("devices on request: %v, %v", deviceNames(devices), err)
	}
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	labs := netlab.Labs{Dir: t.TempDir()}
	one := &testbed{device: devices[0]}
	if err = one.build(t.Context(), labs); err == nil {
		if err := one.remove(t.Context()); err != nil {
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
	f := findings{found: bench.Found[rate]{
		small.cell(l2dsrDevice): {{PerSecond: 4}}, small.cell(ipvsL2DSRDevice): {{PerSecond: 2}}, small.cell(nftablesDevice): {{PerSecond: 1}},
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
	for _, c := range []struct{ was, is, restored, fail string }{
		{was: "100\n", is: "200", restored: "100"},
		{was: "300\n", is: "300\n", restored: "300\n"},
		{was: "many\n", is: "many\n", restored: "many\n", fail: "invalid syntax"},
	} {
		if err := os.WriteFile(path, []byte(c.was), 0o600); err != nil {
			t.Fatal(err)
		}
		table := connectionTable{}
		err := table.raise(path, 200)
		if (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%q: error %v", c.was, err)
		}
		is, err := os.ReadFile(path)
		failed := table.restore()
		restored, readErr := os.ReadFile(path)
		if string(is) != c.is || string(restored) != c.restored || errors.Join(err, failed, readErr) != nil {
			t.Errorf("%q raised: is %q, restored %q, %v", c.was, is, restored, errors.Join(err, failed, readErr))
		}
	}
}

// 5 million packets a second without a device, 4 million with one: 50 ns more.
func TestDeviceCostSubtractsSenderAndSink(t *testing.T) {
	f := findings{found: bench.Found[rate]{small.cell(noDevice): {{PerSecond: 5e6}}, small.cell(l2dsrDevice): {{PerSecond: 4e6}}}}
	if got := f.deviceCost(small, l2dsrDevice); len(got) != 1 || got[0] < 49.9 || got[0] > 50.1 {
		t.Errorf("cost %v, want 50", got)
	}
	if got := f.deviceCost(small, iptablesDevice); got != nil {
		t.Errorf("cost %v of a device that wasn't measured", got)
	}
}
