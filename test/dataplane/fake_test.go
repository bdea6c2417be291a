// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// newFake returns a data plane that ends with the test.
func newFake(t *testing.T) *dataplanetest.Fake {
	dp := dataplanetest.NewFake()
	t.Cleanup(func() {
		if err := dp.Close(); err != nil {
			t.Error(err)
		}
	})
	return dp
}

func TestContract(t *testing.T) {
	dataplanetest.RunContract(t, dataplanetest.Harness{
		New: func(t *testing.T) dataplane.DataPlane {
			dp := newFake(t)
			dp.SetUnusable(netip.AddrPortFrom(dataplanetest.Unusable, 80), "no route")
			return dp
		},
		Limits:  dataplanetest.Limits(),
		Forward: lb.L2DSR,
		MAC:     func(netip.Addr) lb.MAC { return lb.MAC{2, 0, 0, 0, 0, 1} },
		Probe: func(_ *testing.T, dp dataplane.DataPlane, vip lb.VIP, client netip.AddrPort, _ []lb.Backend) (lb.BackendID, bool) {
			return dp.(*dataplanetest.Fake).Probe(vip, client)
		},
	})
}

func web() *lb.Service {
	return &lb.Service{
		Name:    "web",
		VIP:     lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP},
		Forward: lb.L2DSR,
		Backends: []lb.Backend{
			{Address: netip.MustParseAddr("10.0.0.23"), Port: 80, Weight: 0},
			{Address: netip.MustParseAddr("10.0.0.22"), Port: 80, Weight: 1},
			{Address: netip.MustParseAddr("10.0.0.21"), Port: 80, Weight: 1},
		},
	}
}

func TestDump(t *testing.T) {
	dp, svc := newFake(t), web()
	dp.SetUnusable(svc.Backends[1].ID(), "no route")
	if _, err := dp.Update(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	want := `tcp 10.1.1.1:80 web l2dsr flow ring 127
  10.0.0.21:80 weight 1 entries 127
  10.0.0.22:80 weight 1 out: no route
  10.0.0.23:80 weight 0 out: weight 0
`
	if got := dp.Dump(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFail(t *testing.T) {
	dp, svc := newFake(t), web()
	if _, err := dp.Update(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	before, broken := dp.Dump(), errors.New("broken")
	dp.Fail = func(string, lb.VIP) error { return broken }
	changed := web()
	changed.Backends = changed.Backends[:1]
	_, updated := dp.Update(t.Context(), changed)
	for _, err := range []error{updated, dp.Delete(t.Context(), svc.VIP), dp.Prune(t.Context(), nil)} {
		if !errors.Is(err, broken) {
			t.Errorf("error %v, want %v", err, broken)
		}
	}
	if after := dp.Dump(); after != before {
		t.Errorf("a call that failed made\n%s\nof\n%s", after, before)
	}
	want := []string{
		"update tcp 10.1.1.1:80",
		"update tcp 10.1.1.1:80: failed",
		"delete tcp 10.1.1.1:80: failed",
		"prune: failed",
	}
	if got := dp.Calls(); !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dp, one, two := newFake(t), web().VIP, web().VIP
		two.Port = 81
		for _, vip := range []lb.VIP{one, two, one, one} {
			dp.MarkStale(vip)
		}
		if got := <-dp.Stale(); got != one {
			t.Errorf("first %s, want %s", got, one)
		}
		dp.MarkStale(one) // it no longer waits, so it is queued again
		for _, want := range []lb.VIP{two, one} {
			if got := <-dp.Stale(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		synctest.Wait()
		select {
		case vip := <-dp.Stale():
			t.Errorf("%s is queued twice", vip)
		default:
		}
	})
}
