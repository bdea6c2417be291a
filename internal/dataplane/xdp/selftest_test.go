// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
)

// The program in use contains the features that the services need, and no others.
func TestProgramFeatures(t *testing.T) {
	p := openTestPlane(t, testPins(t))
	want := func(f program.Features) {
		t.Helper()
		must(t, p.loader.program(t.Context(), 0, p.programs.Suits, func() error { return nil }))
		if p.programs.Features != f {
			t.Errorf("program has %s, want %s", p.programs.Features, f)
		}
	}
	direct, tunnelled := manyBackends(vip4, 2), manyBackends(vip6, 2)
	tunnelled.Forward = lb.IPIP
	update(t, p, direct)
	want(program.FeatureL2DSR)
	update(t, p, tunnelled)
	want(program.FeatureL2DSR | program.FeatureIPIP)
	direct.Forward = lb.IPIP
	update(t, p, direct)
	want(program.FeatureIPIP)
	remove(t, p, direct.VIP)
	want(program.FeatureIPIP)
	remove(t, p, tunnelled.VIP)
	want(0)
}

// A program that balances wrongly is found out before it is attached.
func TestSelfTest(t *testing.T) {
	needRoot(t)
	if err := selfTest(program.AllFeatures, 7); err != nil {
		t.Errorf("whole program: %v", err)
	}
	p := openTestPlane(t, testPins(t))
	for _, svc := range selfTestServices() {
		loaded, err := p.programs.Load(program.AllFeatures &^ propertiesOf(svc).needs())
		must(t, err)
		if err := testService(p, loaded, svc); err == nil {
			t.Errorf("%s: a program without the mode passes", svc.Forward)
		}
		remove(t, p, svc.VIP)
	}
}
