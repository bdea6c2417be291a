// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// The program in use contains what the services need, and nothing else.
func TestProgramSuitsItsServices(t *testing.T) {
	p, _ := newTestPlane(t)
	want := func(f features) {
		t.Helper()
		if _, err := p.loaded(); err != nil {
			t.Fatal(err)
		}
		if p.kernel.features != f {
			t.Errorf("program has %s, want %s", p.kernel.features, f)
		}
	}
	direct, tunnelled := manyBackends(vip4, 2), manyBackends(vip6, 2)
	tunnelled.Forward = lb.IPIP
	update(t, p, direct)
	want(featureL2DSR)
	update(t, p, tunnelled)
	want(featureL2DSR | featureIPIP)
	direct.Forward = lb.IPIP
	update(t, p, direct)
	want(featureIPIP)
	remove(t, p, direct.VIP)
	want(featureIPIP)
	remove(t, p, tunnelled.VIP)
	want(0)
}

// A program that balances wrongly is found out before it is attached.
func TestSelfTest(t *testing.T) {
	needRoot(t)
	if err := selfTest(allFeatures, 7); err != nil {
		t.Errorf("whole program: %v", err)
	}
	p, _ := newTestPlane(t)
	for _, c := range selfTestCases() {
		svc := c.svc
		var err error
		if p.kernel.program, err = p.kernel.compile(allFeatures &^ featuresOf(svc)); err != nil {
			t.Fatal(err)
		}
		if err := p.testService(c); err == nil {
			t.Errorf("%s to %s: a program without what it needs passes", svc.VIP, c.exits)
		}
		if err := p.kernel.program.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Delete(context.Background(), svc.VIP); err != nil {
			t.Error(err)
		}
		p.kernel.program = nil
	}
}
