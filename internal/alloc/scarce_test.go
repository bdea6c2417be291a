// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/alloc"
)

// The last addresses of a pool are for namespaces with few of it, by family. Pools of up to 16 addresses have
// no rest, nor have external ones.
func TestScarce(t *testing.T) {
	for _, c := range []struct {
		addresses string
		external  bool
		want      int // of one namespace
	}{
		{"192.0.2.0/32", false, 1},
		{"192.0.2.0/28", false, 16},
		{"192.0.2.0-192.0.2.16", false, 16},
		{"192.0.2.0/27", false, 31},
		{"192.0.2.0/24", false, 241},
		{"192.0.2.0/24", true, 256},
		{"198.51.100.0/22", false, 964},
		{"2001:db8::/120", false, 241},
		{"2001:db8::/64", false, 1000},
	} {
		r, err := alloc.ParseRange(c.addresses)
		if err != nil {
			t.Fatal(err)
		}
		a := alloc.New()
		p := pool(t, "p", c.addresses)
		p.External = c.external
		a.SetPools([]alloc.Pool{p})
		next, got := r.From(), 0
		claim := func(namespace string, n int) error {
			q := alloc.Request{Owner: alloc.Owner{Namespace: namespace, Name: fmt.Sprint(n)}, Families: []alloc.Family{alloc.FamilyOf(next)}, Pools: []string{"p"}}
			if n%2 == 0 || c.external { // requested, or in turn
				q.Wanted = []netip.Addr{next}
			}
			_, err := a.Claim(q)
			return err
		}
		for ; got < 1000; got++ {
			if err = claim("a", got); err != nil {
				break
			}
			next = next.Next()
		}
		if got != c.want {
			t.Errorf("%s: one namespace has %d, want %d (%v)", c.addresses, got, c.want, err)
		}
		failed, _ := errors.AsType[*alloc.Error](err)
		if r.Contains(next) && got < 1000 {
			if failed.Reason != alloc.Scarce {
				t.Errorf("%s: %v", c.addresses, err)
			}
			if err := claim("b", 1); err != nil {
				t.Errorf("%s: another namespace: %v", c.addresses, err)
			}
		}
	}
}

// A namespace with many addresses of a scarce pool keeps them, exchanges one for another, gets the retained
// ones, and addresses of other pools.
func TestScarceKeeps(t *testing.T) {
	a := alloc.New()
	a.SetPools([]alloc.Pool{pool(t, "p", "192.0.2.0/27"), pool(t, "q", "198.51.100.0/32")})
	claim := func(name, wanted string, pools ...string) string {
		q := alloc.Request{Owner: alloc.Owner{Namespace: "a", Name: name}, Families: []alloc.Family{alloc.IPv4}, Pools: pools}
		if wanted != "" {
			q.Wanted = []netip.Addr{netip.MustParseAddr(wanted)}
		}
		got, err := a.Claim(q)
		if err != nil {
			return outcomeOf(err)
		}
		return got.Addresses[0].Address.String()
	}
	for i := range 31 {
		claim(fmt.Sprint(i), "", "p")
	}
	for _, step := range []struct{ name, wanted, pools, want string }{
		{"new", "", "p", alloc.Scarce},
		{"new", "192.0.2.31", "p", alloc.Scarce},
		{"7", "", "p", "192.0.2.7"},
		{"7", "192.0.2.7", "p", "192.0.2.7"},
		{"7", "192.0.2.31", "p", "192.0.2.31"},
		{"new", "", "p", alloc.Scarce},
		{"new", "", "q", "198.51.100.0"},
	} {
		if got := claim(step.name, step.wanted, step.pools); got != step.want {
			t.Errorf("%+v: %s", step, got)
		}
	}
	if both := claim("more", "", "q", "p"); both != alloc.Scarce {
		t.Errorf("a pool that is exhausted, and a scarce one: %s", both)
	}
	a.Release(alloc.Owner{Namespace: "a", Name: "5"})
	a.Reserve(netip.MustParseAddr("192.0.2.5"), retention("a"))
	if got := claim("more", "", "p"); got != "192.0.2.5" {
		t.Errorf("a retained address: %s", got)
	}
}
