// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
)

const (
	// maxRetained and maxRetainedOfNamespace limit the retained addresses of a pool, which its
	// status lists: it is written each time, and every agent reads it.
	maxRetained            = 128
	maxRetainedOfNamespace = 64
)

// retention is a released address that only its former namespace gets. The allocator has the
// namespaces, this the times; the statuses of pools have both, for the next leader.
type retention struct {
	pool, namespace string
	released        time.Time
}

// retain retains addresses of an owner that were released, in pools that retain addresses.
func (l *allocations) retain(owner alloc.Owner, addresses []netip.Addr) {
	for _, a := range addresses {
		p := l.poolOf(a)
		if p == nil || p.RetainFor <= 0 || !l.untagged.Retain(a, owner.Namespace) {
			continue
		}
		// A status has seconds.
		l.retained[a] = retention{p.Name, owner.Namespace, l.now().Truncate(time.Second)}
		l.limitRetained(p.Name)
	}
}

// limitRetained ends retentions of a pool that has too many: the first of a namespace that has too
// many, or of the one with the most.
func (l *allocations) limitRetained(pool string) {
	of := map[string][]netip.Addr{}
	total, most := 0, ""
	for a, r := range l.retained {
		if r.pool == pool {
			of[r.namespace] = append(of[r.namespace], a)
			total++
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(of)) {
		if len(of[namespace]) > len(of[most]) {
			most = namespace
		}
	}
	if total <= maxRetained && len(of[most]) <= maxRetainedOfNamespace {
		return
	}
	l.endRetention(slices.MinFunc(of[most], func(a, b netip.Addr) int {
		return cmp.Or(l.retained[a].released.Compare(l.retained[b].released), a.Compare(b))
	}))
}

func (l *allocations) endRetention(a netip.Addr) {
	l.untagged.Unretain(a)
	delete(l.retained, a)
	l.supplyChanged = true
}

// poolOf returns the first pool that has an address; nil for none.
func (l *allocations) poolOf(a netip.Addr) *addressPool {
	name := l.untagged.PoolOf(a)
	if i := slices.IndexFunc(l.pools, func(p addressPool) bool { return p.Name == name }); i >= 0 {
		return &l.pools[i]
	}
	return nil
}

// expire ends the retentions that are over, and returns the time until the next one is; 0 for none.
func (l *allocations) expire() (next time.Duration) {
	now := l.now()
	for a, r := range l.retained {
		p := l.poolOf(a)
		if l.untagged.RetainedFor(a) == "" {
			delete(l.retained, a) // it has an owner
			continue
		}
		if r.released.After(now) { // the clock was ahead, or another leader's is
			r.released = now.Truncate(time.Second)
		}
		if p == nil || !now.Before(r.released.Add(p.RetainFor)) {
			l.endRetention(a)
			continue
		}
		r.pool = p.Name
		l.retained[a] = r
		if left := r.released.Add(p.RetainFor).Sub(now); next == 0 || left < next {
			next = left
		}
	}
	return next
}

// Expire ends the retentions that are over, and returns the time until the next call; 0 for never.
func (l *allocations) Expire() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.serveWaiting()
	return l.expire()
}

// Retained returns the retained addresses of a pool, sorted.
func (l *allocations) Retained(pool string) (all []v1alpha1.RetainedAddress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range slices.SortedFunc(maps.Keys(l.retained), netip.Addr.Compare) {
		if r := l.retained[a]; r.pool == pool && l.untagged.RetainedFor(a) != "" {
			all = append(all, v1alpha1.RetainedAddress{Address: a.String(), Namespace: r.namespace, Released: metav1.NewTime(r.released)})
		}
	}
	return all
}

// Restore takes over the retentions of an earlier leader, after SetPools and before Adopt.
func (l *allocations) Restore(all []v1alpha1.RetainedAddress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range all {
		a, err := netip.ParseAddr(r.Address)
		if err != nil {
			continue
		}
		if p := l.poolOf(a); p != nil && r.Namespace != "" && l.untagged.Retain(a, r.Namespace) {
			l.retained[a] = retention{p.Name, r.Namespace, r.Released.Time}
			l.limitRetained(p.Name)
		}
	}
	l.expire()
}
