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
		for _, c := range p.cases {
			for _, d := range p.devices {
				runs := f.rate(c, d.name)
				if low, _ := runs.Bounds(); len(runs) != p.rounds || low <= 0 {
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
	p := smallPlan(devices)
	p.cases = []conditions{{lb.UDP, establishedFlows, "512"}}
	measure(t, p, func(w *testbed) {
		got, err := w.sink.Received()
		if err != nil || got.Frames == 0 || got.Bytes != 512*got.Frames {
			t.Errorf("%s: %d bytes in %d frames, %v, want 512 in each", w.device.name, got.Bytes, got.Frames, err)
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
		for _, c := range p.cases {
			for i, d := range p.devices {
				if found[c.cell(d.name)] != nil {
					t.Errorf("two cells are called %s", c.cell(d.name))
				}
				found[c.cell(d.name)] = []rate{{PerSecond: 1e6 - 1000*float64(i)}}
			}
		}
		r := &bench.Report{Ratios: map[string]float64{}}
		if err := (findings{p, found}).report(r); err != nil {
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
