// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
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

// A released address is its former namespace's for a while, whatever others request and however
// long they have waited.
func TestRetention(t *testing.T) {
	l, now := retaining(t, "192.0.2.0-192.0.2.0")
	compare(t, "first", l.Request(request("web", 0)).Addresses, addresses("192.0.2.0"))
	parked := of("b", request("parked", 500), "192.0.2.0")
	if g := l.Request(parked); reason(g.Err) != alloc.Taken {
		t.Errorf("a taken address: %v", g.Err)
	}
	l.Request(of("b", request("any", 500)))
	l.Release(owner("web"))
	if g := l.Get(parked.Owner); len(g.Addresses) > 0 || reason(g.Err) != alloc.Retained {
		t.Errorf("who waited for the address: %v, %v", g.Addresses, g.Err)
	}
	if got := l.Retained("main"); len(got) != 1 || got[0].Namespace != "a" || !got[0].Released.Time.Equal(*now) {
		t.Errorf("retained %v", got)
	}
	compare(t, "the namespace again", l.Request(request("web", 0)).Addresses, addresses("192.0.2.0"))
	if got := l.Retained("main"); len(got) > 0 {
		t.Errorf("an assigned address is retained: %v", got)
	}
	l.Release(owner("web"))
	*now = now.Add(59 * time.Minute)
	if next := l.Expire(); next != time.Minute || len(l.Get(parked.Owner).Addresses) > 0 {
		t.Errorf("a minute before: next in %s, %v", next, l.Get(parked.Owner).Addresses)
	}
	*now = now.Add(time.Minute)
	if next := l.Expire(); next != 0 {
		t.Errorf("nothing is retained: next in %s", next)
	}
	if n := len(l.Get(parked.Owner).Addresses) + len(l.Get(of("b", request("any", 0)).Owner).Addresses); n != 1 {
		t.Errorf("%d owners got the address after an hour", n)
	}
}

// An address that an owner exchanges is retained when its status no longer shows it.
func TestRetentionOfExchanged(t *testing.T) {
	l, _ := retaining(t, "192.0.2.0/31")
	l.Request(request("web", 0))
	compare(t, "another address", l.Request(of("a", request("web", 0), "192.0.2.1")).Addresses, addresses("192.0.2.1"))
	if got := l.Retained("main"); len(got) > 0 {
		t.Errorf("an address that a status shows is retained: %v", got)
	}
	l.StatusWritten(owner("web"), nil)
	if g := l.Request(of("b", request("web", 0))); reason(g.Err) != alloc.Exhausted {
		t.Errorf("another namespace: %v, %v", g.Addresses, g.Err)
	}
	compare(t, "the namespace", l.Request(request("next", 0)).Addresses, addresses("192.0.2.0"))
}

// The next leader adopts the retentions in pool statuses.
func TestRetentionOfAnotherLeader(t *testing.T) {
	l, now := retaining(t, "192.0.2.0/31")
	for _, name := range []string{"a", "b"} {
		l.Request(request(name, 0))
	}
	l.Release(owner("a"))
	l.Release(owner("b"))
	status := l.Retained("main")
	next, clock := retaining(t, "192.0.2.0/31")
	*clock = now.Add(time.Minute)
	next.Restore(status)
	waits, served := of("b", request("waits", 900)), of("b", request("served", 900))
	next.Adopt([]adopted{{addressRequest: waits}, {addressRequest: served, Addresses: addresses("192.0.2.1")}})
	compare(t, "who waited", next.Get(waits.Owner).Addresses, nil)
	compare(t, "who has an address", next.Get(served.Owner).Addresses, addresses("192.0.2.1"))
	if got := next.Retained("main"); len(got) != 1 || got[0] != status[0] {
		t.Errorf("retained %v, want %v", got, status[:1])
	}
	if left := next.Expire(); left != 59*time.Minute {
		t.Errorf("%s left", left)
	}
	compare(t, "the former namespace", next.Request(request("a", 0)).Addresses, addresses("192.0.2.0"))
}

// A pool that retains no longer, or not at all, gives its addresses at once.
func TestRetentionEnds(t *testing.T) {
	l, _ := retaining(t, "192.0.2.0-192.0.2.0")
	other := of("b", request("web", 0))
	l.Request(request("web", 0))
	l.Request(other)
	l.Release(owner("web"))
	l.SetPools([]addressPool{retainingPool(t, "192.0.2.0-192.0.2.0", 0)})
	compare(t, "who waited", l.Get(other.Owner).Addresses, addresses("192.0.2.0"))
	l.Release(other.Owner)
	compare(t, "the next one", l.Request(request("web", 0)).Addresses, addresses("192.0.2.0"))
}

// A release that the clock says is still to come counts from now on.
func TestRetentionClockSkew(t *testing.T) {
	l, now := retaining(t, "192.0.2.0-192.0.2.0")
	right := *now
	*now = right.Add(365 * 24 * time.Hour)
	l.Request(request("web", 0))
	l.Release(owner("web"))
	*now = right
	if next := l.Expire(); next != time.Hour {
		t.Errorf("it ends in %s, want %s", next, time.Hour)
	}
	if got := l.Retained("main"); len(got) != 1 || !got[0].Released.Time.Equal(right) {
		t.Errorf("retained %v, want since %s", got, right)
	}
	*now = right.Add(time.Hour)
	if l.Expire(); len(l.Retained("main")) > 0 {
		t.Errorf("retained %v after an hour", l.Retained("main"))
	}
}

// A namespace, and all together, retain a bounded number of addresses: the last released.
func TestRetentionLimits(t *testing.T) {
	l, now := retaining(t, "10.0.0.0/16")
	first := map[string]netip.Addr{}
	for n := range 20 {
		namespace := fmt.Sprintf("n%d", n)
		var requests []addressRequest
		for i := range maxRetainedOfNamespace + 10 {
			q := of(namespace, request(fmt.Sprint(i), 0))
			g := l.Request(q)
			if i == 0 {
				first[namespace] = g.Addresses[0]
			}
			requests = append(requests, q)
		}
		for _, q := range requests {
			*now = now.Add(time.Second)
			l.Release(q.Owner)
		}
		counts := map[string]int{}
		for _, r := range l.Retained("main") {
			counts[r.Namespace]++
			if r.Address == first[namespace].String() {
				t.Errorf("%s: the first released address is retained", namespace)
			}
		}
		if c := counts[namespace]; c > maxRetainedOfNamespace || c < maxRetained/20 {
			t.Errorf("%s has %d", namespace, c)
		}
	}
	if n := len(l.Retained("main")); n != maxRetained {
		t.Errorf("%d retained, want %d", n, maxRetained)
	}
	next, _ := retaining(t, "10.0.0.0/16")
	next.now = l.now
	var status []v1alpha1.RetainedAddress
	for i := range 2 * maxRetained {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		status = append(status, v1alpha1.RetainedAddress{Address: a.String(), Namespace: fmt.Sprint(i % 20), Released: metav1.NewTime(*now)})
	}
	next.Restore(status)
	if n := len(next.Retained("main")); n != maxRetained {
		t.Errorf("%d restored, want %d", n, maxRetained)
	}
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
	compare(t, "the first", l.Request(mine).Addresses, addresses("192.0.2.7"))
	if g := l.Request(other); reason(g.Err) != alloc.Taken || len(g.Addresses) > 0 {
		t.Errorf("a taken address: %v, %v", g.Addresses, g.Err)
	}
	mine.Wanted = nil
	if g := l.Request(mine); reason(g.Err) != alloc.NoPool || len(g.Addresses) > 0 || len(g.Releasing) != 1 {
		t.Errorf("without a request: %v, releasing %v, %v", g.Addresses, g.Releasing, g.Err)
	}
	l.StatusWritten(mine.Owner, nil)
	compare(t, "the second", l.Get(other.Owner).Addresses, addresses("192.0.2.7"))
}
