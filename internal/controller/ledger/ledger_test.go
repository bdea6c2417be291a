// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/controller/ledger"
	"fairlead.io/fairlead/internal/lb"
)

func owner(name string) alloc.Owner {
	return alloc.Owner{Kind: "Service", Namespace: "a", Name: name}
}

// wish is one for an IPv4 address, of an owner that is so many seconds old.
func wish(name string, age int) ledger.Wish {
	return ledger.Wish{Owner: owner(name), Created: time.Unix(int64(1000-age), 0), Families: []alloc.Family{alloc.IPv4}}
}

func addresses(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// pool is one of a range, for those whom selectors pick.
func pool(t *testing.T, name, text, namespaces, objects string) ledger.Pool {
	t.Helper()
	r, err := alloc.ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	p := ledger.Pool{Pool: alloc.Pool{Name: name, Ranges: []alloc.Range{r}, Automatic: true}}
	var wrong [2]error
	p.Namespaces, wrong[0] = labels.Parse(namespaces)
	p.Objects, wrong[1] = labels.Parse(objects)
	if err := errors.Join(wrong[:]...); err != nil {
		t.Fatal(err)
	}
	return p
}

// begun is a ledger with one pool, and a list of those whom it wakes.
func begun(t *testing.T, text string) (l *ledger.Ledger, woken *[]string) {
	t.Helper()
	woken = new([]string)
	l = ledger.New(func(o alloc.Owner) { *woken = append(*woken, o.Name) })
	l.SetPools([]ledger.Pool{pool(t, "main", text, "", "")})
	return l, woken
}

func compare(t *testing.T, what string, got, want []netip.Addr) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// What becomes free goes to those who wait, the oldest first, before anybody new.
func TestWaiting(t *testing.T) {
	l, woken := begun(t, "192.0.2.0/32")
	compare(t, "first", l.Claim(wish("first", 9)).Addresses, addresses("192.0.2.0"))
	for name, age := range map[string]int{"young": 1, "old": 5, "middle": 3} {
		var exhausted *alloc.ExhaustedError
		if g := l.Claim(wish(name, age)); !errors.As(g.Unmet, &exhausted) {
			t.Errorf("%s: %+v", name, g)
		}
	}
	if l.Waiting() != 3 {
		t.Errorf("%d wait", l.Waiting())
	}
	l.Gone(owner("first"))
	compare(t, "new", l.Claim(wish("new", 0)).Addresses, nil)
	compare(t, "old", l.Grant(owner("old")).Addresses, addresses("192.0.2.0"))
	l.SetPools([]ledger.Pool{pool(t, "main", "192.0.2.0/31", "", "")})
	compare(t, "middle", l.Grant(owner("middle")).Addresses, addresses("192.0.2.1"))
	if want := []string{"old", "middle"}; !slices.Equal(*woken, want) {
		t.Errorf("woken %v, want %v", *woken, want)
	}
	if l.Waiting() != 2 || l.Knows(owner("first")) || !l.Knows(owner("new")) {
		t.Errorf("%d wait", l.Waiting())
	}
}

// An address that was lost is nobody's until it is known not to be shown.
func TestLeaving(t *testing.T) {
	l, _ := begun(t, "192.0.2.0/32")
	l.Claim(wish("one", 2))
	l.SetPools([]ledger.Pool{pool(t, "main", "192.0.2.0/31", "", ""), pool(t, "other", "192.0.2.8/32", "", "")})
	other := wish("one", 2)
	other.Pool = "other"
	g := l.Claim(other)
	compare(t, "moved", g.Addresses, addresses("192.0.2.8"))
	compare(t, "leaving", g.Leaving, addresses("192.0.2.0"))
	want := wish("two", 1)
	want.Wanted = addresses("192.0.2.0")
	compare(t, "another", l.Claim(want).Addresses, nil)
	l.Settled(owner("one"), addresses("192.0.2.0")) // shown still
	compare(t, "another, while it is shown", l.Grant(owner("two")).Addresses, nil)
	l.Settled(owner("one"), addresses("192.0.2.8"))
	compare(t, "another, afterwards", l.Grant(owner("two")).Addresses, addresses("192.0.2.0"))
	compare(t, "leaving, afterwards", l.Grant(owner("one")).Leaving, nil)
}

// Of two that show one address the older keeps it. When that goes it isn't free before
// the other one doesn't show it any more either.
func TestConflict(t *testing.T) {
	l, woken := begun(t, "192.0.2.0/31")
	conflicts := l.Adopt([]ledger.Held{
		{Wish: wish("younger", 1), Addresses: addresses("192.0.2.0")},
		{Wish: wish("older", 2), Addresses: addresses("192.0.2.0")},
		{Wish: wish("waiting", 3)},
		{Wish: wish("waiting longer", 4)},
	})
	if len(conflicts) != 1 || conflicts[0].Owner != owner("younger") {
		t.Errorf("conflicts %v", conflicts)
	}
	compare(t, "waiting longer", l.Grant(owner("waiting longer")).Addresses, addresses("192.0.2.1"))
	compare(t, "leaving", l.Grant(owner("younger")).Leaving, addresses("192.0.2.0"))
	l.Gone(owner("older"))
	compare(t, "waiting", l.Grant(owner("waiting")).Addresses, nil)
	l.Settled(owner("younger"), nil)
	compare(t, "waiting, afterwards", l.Grant(owner("waiting")).Addresses, addresses("192.0.2.0"))
	if want := []string{"waiting longer", "waiting"}; !slices.Equal(*woken, want) {
		t.Errorf("woken %v, want %v", *woken, want)
	}
}

// Who says something that can't be understood keeps what it has and gets nothing else.
// Its ports are known all the same: nobody gets its address who has one of them.
func TestNotUnderstood(t *testing.T) {
	l, _ := begun(t, "192.0.2.0/30")
	shared := func(name string, age int, port uint16) ledger.Wish {
		w := wish(name, age)
		w.Sharing.Key, w.Ports = "k", []alloc.Port{{Number: port, Protocol: lb.TCP}}
		return w
	}
	compare(t, "one", l.Claim(shared("one", 3, 80)).Addresses, addresses("192.0.2.0"))
	compare(t, "two", l.Claim(shared("two", 2, 443)).Addresses, addresses("192.0.2.0"))
	unclear := shared("one", 3, 8080)
	unclear.Families, unclear.Sharing.Key, unclear.SameKey = nil, "", true
	compare(t, "another port", l.Claim(unclear).Addresses, addresses("192.0.2.0"))
	compare(t, "three, with its new port", l.Claim(shared("three", 1, 8080)).Addresses, addresses("192.0.2.1"))
	compare(t, "four, with its old port", l.Claim(shared("four", 1, 80)).Addresses, addresses("192.0.2.0"))
	unclear.Ports = []alloc.Port{{Number: 443, Protocol: lb.TCP}}
	g := l.Claim(unclear)
	compare(t, "a port that another has", g.Addresses, nil)
	compare(t, "leaving", g.Leaving, addresses("192.0.2.0"))
	if l.Waiting() != 0 {
		t.Errorf("%d wait", l.Waiting())
	}
	alone := shared("four", 1, 80)
	alone.Families, alone.Sharing.Key = nil, ""
	compare(t, "no key beside another", l.Claim(alone).Addresses, nil)
}

// Pools are for those whom their selectors pick, and are tried by priority, then by
// name.
func TestPools(t *testing.T) {
	l := ledger.New(func(alloc.Owner) {})
	first := pool(t, "first", "192.0.2.1/32", "", "tier=web")
	first.Priority = 1
	l.SetPools([]ledger.Pool{
		pool(t, "b", "192.0.2.3/32", "", ""), pool(t, "a", "192.0.2.2/32", "", ""), first,
		pool(t, "named", "192.0.2.9/32", "team=x", ""),
	})
	web := wish("web", 1)
	web.Labels = labels.Set{"tier": "web"}
	compare(t, "by priority", l.Claim(web).Addresses, addresses("192.0.2.1"))
	compare(t, "by name", l.Claim(wish("a", 1)).Addresses, addresses("192.0.2.2"))
	compare(t, "by name, the next", l.Claim(wish("b", 1)).Addresses, addresses("192.0.2.3"))
	compare(t, "none", l.Claim(wish("c", 1)).Addresses, nil)
	if concerned := l.SetNamespace("a", labels.Set{"team": "x"}); len(concerned) != 4 {
		t.Errorf("concerned %v", concerned)
	}
	compare(t, "by namespace", l.Grant(owner("c")).Addresses, addresses("192.0.2.9"))
	if concerned := l.SetNamespace("a", labels.Set{"team": "x"}); concerned != nil {
		t.Errorf("concerned %v of nothing new", concerned)
	}
	l.SetNamespace("a", nil)
	g := l.Claim(wish("c", 1))
	compare(t, "not by namespace", g.Addresses, nil)
	compare(t, "leaving", g.Leaving, addresses("192.0.2.9"))
}

// Every tagged network has its own addresses, without pools.
func TestSegments(t *testing.T) {
	l, _ := begun(t, "192.0.2.0/32")
	in := func(name string, id uint32) ledger.Wish {
		w := wish(name, 1)
		w.Wanted, w.Segment = addresses("192.0.2.0"), lb.Segment{Type: lb.SegmentVLAN, ID: id}
		return w
	}
	compare(t, "untagged", l.Claim(wish("untagged", 1)).Addresses, addresses("192.0.2.0"))
	compare(t, "7", l.Claim(in("seven", 7)).Addresses, addresses("192.0.2.0"))
	compare(t, "7 again", l.Claim(in("again", 7)).Addresses, nil)
	g := l.Claim(in("seven", 8))
	compare(t, "moved to 8", g.Addresses, addresses("192.0.2.0"))
	compare(t, "leaving 7", g.Leaving, addresses("192.0.2.0"))
	compare(t, "7, while it is being left", l.Grant(owner("again")).Addresses, nil)
	l.Settled(owner("seven"), nil)
	compare(t, "7, afterwards", l.Grant(owner("again")).Addresses, addresses("192.0.2.0"))
}

// Who shares an address is one unit.
func TestUnits(t *testing.T) {
	l, _ := begun(t, "192.0.2.0/30")
	share := func(name string, port uint16) ledger.Wish {
		w := wish(name, 1)
		w.Sharing.Key, w.Ports = "k", []alloc.Port{{Number: port, Protocol: lb.TCP}}
		return w
	}
	for _, w := range []ledger.Wish{share("a", 80), wish("b", 1), share("c", 443)} {
		l.Claim(w)
	}
	var got [][]string
	for _, u := range l.Units() {
		var names []string
		for _, m := range u.Members {
			names = append(names, m.Owner.Name)
		}
		got = append(got, names)
		if u.Addresses != 1 {
			t.Errorf("%v: %d addresses", names, u.Addresses)
		}
	}
	if want := [][]string{{"a", "c"}, {"b"}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("units %v, want %v", got, want)
	}
	if usage := l.Usage("main"); usage.IPv4.Assigned != 2 || usage.IPv4.Size != 4 {
		t.Errorf("usage %+v", usage)
	}
}
