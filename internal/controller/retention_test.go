// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/spec"
)

// retaining returns allocations with a pool that retains addresses for an hour, and their clock.
func retaining(t *testing.T, text string) (l *allocations, now *time.Time) {
	t.Helper()
	now = new(time.Unix(1_000_000, 0))
	l = newAllocations(func(alloc.Owner) {})
	l.now = func() time.Time { return *now }
	l.SetPools([]addressPool{retainingPool(t, text, time.Hour)})
	return l, now
}

func retainingPool(t *testing.T, text string, d time.Duration) addressPool {
	t.Helper()
	p := pool(t, "main", text, "", "")
	p.RetainFor = d
	return p
}

// of is a request of another namespace.
func of(namespace string, q addressRequest, wanted ...string) addressRequest {
	q.Owner.Namespace, q.Wanted = namespace, addresses(wanted...)
	return q
}

func reason(err error) string {
	if failed, ok := errors.AsType[*alloc.Error](err); ok {
		return failed.Reason
	}
	return fmt.Sprint(err)
}

// retained returns the retained addresses, sorted.
func (l *allocations) retained() (all []string) {
	for _, object := range l.objects.byName {
		if object.Spec.Retained != nil {
			all = append(all, string(object.Spec.Address))
		}
	}
	slices.Sort(all)
	return all
}

// release ends a request, and removes the owner from the objects of its addresses.
func release(l *allocations, owner alloc.Owner) {
	l.Release(owner)
	leave(l, owner)
}

// expire deletes the objects that aren't retained any more, and returns the time until there are others.
func expire(l *allocations) time.Duration {
	over, next := l.Expired()
	for _, object := range over {
		l.Observe(object.Name, nil)
	}
	return next
}

// A released address is its former namespace's for a while, whatever others request and however
// long they have waited.
func TestRetention(t *testing.T) {
	l, now := retaining(t, "192.0.2.0-192.0.2.0")
	parked := of("b", request("parked", 900), "192.0.2.0")
	assign(l, request("web", 0))
	l.Request(parked)
	l.Request(of("b", request("any", 0)))
	release(l, owner("web"))
	const retained = "address 192.0.2.0: retained for namespace a, whose object released it, until 1970-01-12T14:46:40Z (retainFor of its pool)"
	if g := l.Request(parked); reason(g.Err) != alloc.Retained || g.Err.Error() != retained {
		t.Errorf("a requested address: %v, %v", g.Addresses, g.Err)
	}
	if g := l.Request(of("b", request("any", 0))); reason(g.Err) != alloc.Exhausted {
		t.Errorf("any address: %v, %v", g.Addresses, g.Err)
	}
	if got := l.retained(); !slices.Equal(got, []string{"192.0.2.0"}) {
		t.Errorf("retained %v", got)
	}
	compare(t, "the former namespace", assign(l, request("again", 0)).Addresses, addresses("192.0.2.0"))
	if got := l.retained(); len(got) > 0 {
		t.Errorf("retained %v with an owner", got)
	}
	release(l, owner("again"))
	*now = now.Add(59 * time.Minute)
	if next := expire(l); next != time.Minute {
		t.Errorf("next in %s", next)
	}
	*now = now.Add(time.Minute)
	if next := expire(l); next != 0 || len(l.objects.byName) > 0 {
		t.Errorf("after an hour: next in %s, %d objects", next, len(l.objects.byName))
	}
	if n := len(l.Get(parked.Owner).Addresses) + len(l.Get(of("b", request("any", 0)).Owner).Addresses); n != 1 {
		t.Errorf("%d owners got the address after an hour", n)
	}
}

// An address that an owner exchanges is retained when its object doesn't list the owner any more.
func TestRetentionOfExchanged(t *testing.T) {
	l, _ := retaining(t, "192.0.2.0/31")
	assign(l, request("web", 0))
	compare(t, "another address", assign(l, of("a", request("web", 0), "192.0.2.1")).Addresses, addresses("192.0.2.1"))
	if got := l.retained(); len(got) > 0 {
		t.Errorf("an address that a status shows is retained: %v", got)
	}
	leave(l, owner("web"))
	if g := l.Request(of("b", request("web", 0))); reason(g.Err) != alloc.Exhausted {
		t.Errorf("another namespace: %v, %v", g.Addresses, g.Err)
	}
	compare(t, "the namespace", l.Request(request("next", 0)).Addresses, addresses("192.0.2.0"))
}

// The next leader knows retentions by the objects, also of Services that were deleted while there was
// no leader.
func TestRetentionOfAnotherLeader(t *testing.T) {
	l, now := retaining(t, "192.0.2.0/30")
	for _, name := range []string{"a", "b", "c"} {
		assign(l, request(name, 0))
	}
	release(l, owner("a"))
	release(l, owner("b"))
	next, clock := retaining(t, "192.0.2.0/30")
	*clock = now.Add(time.Minute)
	for name, object := range l.objects.byName {
		next.Observe(name, object)
	}
	waits, served := of("b", request("waits", 900), "192.0.2.2"), of("b", request("served", 900))
	next.Adopt([]adopted{{addressRequest: waits}, {addressRequest: served, Addresses: addresses("192.0.2.3")}})
	compare(t, "a requested address of a deleted Service", next.Get(waits.Owner).Addresses, nil)
	compare(t, "who has an address", next.Get(served.Owner).Addresses, addresses("192.0.2.3"))
	if got := next.retained(); !slices.Equal(got, []string{"192.0.2.0", "192.0.2.1"}) {
		t.Errorf("retained %v", got)
	}
	if left := expire(next); left != 59*time.Minute {
		t.Errorf("%s left", left)
	}
	compare(t, "the former owner", next.Request(request("b", 0)).Addresses, addresses("192.0.2.1"))
	compare(t, "the former namespace", next.Request(request("d", 0)).Addresses, addresses("192.0.2.0"))
	leave(next, owner("c"))
	if g := next.Request(waits); reason(g.Err) != alloc.Retained {
		t.Errorf("afterwards: %v", g.Err)
	}
}

// A pool that retains no longer, or not at all, gives its addresses at once.
func TestRetentionEnds(t *testing.T) {
	l, _ := retaining(t, "192.0.2.0-192.0.2.0")
	other := of("b", request("web", 0))
	assign(l, request("web", 0))
	l.Request(other)
	release(l, owner("web"))
	l.SetPools([]addressPool{retainingPool(t, "192.0.2.0-192.0.2.0", 0)})
	expire(l)
	compare(t, "who waited", assign(l, l.records[other.Owner].request).Addresses, addresses("192.0.2.0"))
	release(l, other.Owner)
	compare(t, "the next one", l.Request(request("web", 0)).Addresses, addresses("192.0.2.0"))
}

// A release that the clock says is still to come counts from now on.
func TestRetentionClockSkew(t *testing.T) {
	l, now := retaining(t, "192.0.2.0-192.0.2.0")
	right := *now
	assign(l, request("web", 0))
	*now = right.Add(365 * 24 * time.Hour)
	l.Release(owner("web"))
	former := l.Former(owner("web"))
	*now = right
	l.Observe(former[0].Name, former[0].AssignedAddress)
	if next := expire(l); next != time.Hour {
		t.Errorf("it ends in %s, want %s", next, time.Hour)
	}
	*now = right.Add(time.Hour)
	if expire(l); len(l.retained()) > 0 {
		t.Errorf("retained %v after an hour", l.retained())
	}
}

// A namespace retains a bounded number of addresses, the last released, and ends no retention of others.
func TestRetentionLimit(t *testing.T) {
	l, now := retaining(t, "10.0.0.0/16")
	victim := of("victim", request("web", 0))
	kept := assign(l, victim).Addresses[0].String()
	release(l, victim.Owner)
	var first string
	for n := range 4 {
		namespace := fmt.Sprintf("n%d", n)
		var requests []addressRequest
		for i := range spec.MaxRetained + 10 {
			q := of(namespace, request(fmt.Sprint(i), 0))
			if g := assign(l, q); i == 0 {
				first = g.Addresses[0].String()
			}
			requests = append(requests, q)
		}
		for _, q := range requests {
			*now = now.Add(time.Second)
			release(l, q.Owner)
		}
		expire(l)
		if got := l.retained(); len(got) != 1+(n+1)*spec.MaxRetained || slices.Contains(got, first) || !slices.Contains(got, kept) {
			t.Errorf("%s: retained %d, the first of the namespace: %t, another's: %t", namespace, len(got), slices.Contains(got, first), slices.Contains(got, kept))
		}
	}
}

// Services get the addresses that they had when a pool is created again, or after the controller's start.
func TestPoolReturns(t *testing.T) {
	again := retainingPool(t, "203.0.113.10-203.0.113.19", time.Hour)
	settle := func(l *allocations, q addressRequest) []netip.Addr {
		assign(l, q)
		leave(l, q.Owner)
		return l.Get(q.Owner).Addresses
	}
	want := map[string]string{"b": "203.0.113.11", "c": "203.0.113.12"}
	t.Run("deleted", func(t *testing.T) {
		l, _ := retaining(t, "203.0.113.10-203.0.113.19")
		for _, name := range []string{"a", "b", "c"} {
			settle(l, request(name, 0))
		}
		release(l, owner("a"))
		l.SetPools(nil)
		for name := range want {
			compare(t, name+" without pool", settle(l, request(name, 0)), nil)
		}
		l.SetPools([]addressPool{again})
		for name, a := range want {
			compare(t, name, settle(l, request(name, 0)), addresses(a))
		}
	})
	t.Run("late", func(t *testing.T) {
		l, _ := retaining(t, "203.0.113.10-203.0.113.19")
		l.SetPools(nil)
		var held []adopted
		for name, a := range want {
			held = append(held, adopted{addressRequest: request(name, 0), Addresses: addresses(a)})
		}
		l.Adopt(held)
		for _, one := range held {
			l.Request(one.addressRequest)
			object, _ := l.objects.claim(one.addressRequest, one.Addresses[0], true)
			l.Observe(object.Name, object)
			leave(l, one.Owner)
			compare(t, one.Owner.Name+" without pool", l.Get(one.Owner).Addresses, nil)
		}
		l.SetPools([]addressPool{again})
		for name, a := range want {
			compare(t, name, settle(l, request(name, 0)), addresses(a))
		}
	})
}

// An external pool retains no addresses unless it says so: the other system may assign them again
// at once.
func TestRetentionOfExternalPools(t *testing.T) {
	for name, c := range map[string]struct {
		spec v1alpha1.AddressPoolSpec
		want time.Duration
	}{
		"internal": {v1alpha1.AddressPoolSpec{}, time.Hour},
		"external": {v1alpha1.AddressPoolSpec{External: true}, 0},
		"wanted":   {v1alpha1.AddressPoolSpec{External: true, RetainFor: &metav1.Duration{Duration: time.Minute}}, time.Minute},
	} {
		p, err := parsePool(v1alpha1.AddressPool{Spec: c.spec})
		if err != nil || p.RetainFor != c.want || p.External != c.spec.External {
			t.Errorf("%s: retains for %s, external %t (%v)", name, p.RetainFor, p.External, err)
		}
	}
}

// An object that doesn't request the address of an external pool any more loses it, and another
// namespace's gets it when the status has been written.
func TestExternalAddressReuse(t *testing.T) {
	l := newAllocations(func(alloc.Owner) {})
	p := pool(t, "neutron", "192.0.2.0-192.0.2.9", "", "")
	p.External = true
	l.SetPools([]addressPool{p})
	mine, other := request("web", 0), of("b", request("web", 1), "192.0.2.7")
	mine.Wanted = addresses("192.0.2.7")
	compare(t, "the first", assign(l, mine).Addresses, addresses("192.0.2.7"))
	if g := l.Request(other); reason(g.Err) != alloc.Taken || len(g.Addresses) > 0 {
		t.Errorf("a taken address: %v, %v", g.Addresses, g.Err)
	}
	mine.Wanted = nil
	if g := l.Request(mine); reason(g.Err) != alloc.NoPool || len(g.Addresses) > 0 {
		t.Errorf("without a request: %v, %v", g.Addresses, g.Err)
	}
	leave(l, mine.Owner)
	compare(t, "the second", l.Get(other.Owner).Addresses, addresses("192.0.2.7"))
}
