// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// neighbourKey names an entry of the kernel's neighbour tables.
type neighbourKey struct {
	index   int // the interface's
	address netip.Addr
}

// neighbour is a neighbour entry of the kernel; the zero value stands for
// no entry.
type neighbour struct {
	state uint16 // NUD_*
	mac   lb.MAC
	// managed means that the kernel keeps the entry resolved by itself
	// (NTF_EXT_MANAGED, kernel 5.16).
	managed bool
	// learned means that another control plane owns the entry (NTF_EXT_LEARNED).
	learned bool
	// marked means that Fairlead has made the entry managed (NDA_PROTOCOL), in
	// this process or in an earlier one.
	marked bool
	// failed means that it has not answered since it was last usable.
	failed bool
}

// usable reports whether packets can be sent to the neighbour's MAC address. A
// stale one is as good as a reachable one until the kernel finds otherwise.
func (n neighbour) usable() bool {
	const known = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE |
		unix.NUD_PERMANENT | unix.NUD_NOARP
	return n.state&known != 0 && !n.mac.IsZero()
}

// foreign reports whether the entry is owned by another program. Probing would end
// its permanent state, or the other program's management.
func (n neighbour) foreign() bool {
	return n.state&(unix.NUD_PERMANENT|unix.NUD_NOARP) != 0 || n.learned
}

// How long to wait before a neighbour that the kernel doesn't keep resolved by
// itself is probed again. The first stands for an entry that vanished, or that
// an older kernel has given up; the second is the kernel's own default for
// managed entries (interval_probe_time_ms).
const (
	probeUnresolved = time.Second
	probeResolved   = 5 * time.Second
)

// watched is a neighbour that hops of followed targets depend on.
type watched struct {
	neighbour
	key   neighbourKey
	users set[entry]
	// probed is when resolution of the neighbour was last requested, and
	// refused its answer if it refused.
	probed  time.Time
	refused error
}

// learn stores the kernel's present entry, and reports whether the hop changes.
func (w *watched) learn(n neighbour) bool {
	before := w.neighbour
	n.failed = !n.usable() && (before.failed || n.state&unix.NUD_FAILED != 0)
	w.neighbour = n
	if before.managed && !n.managed {
		w.probed = time.Time{} // it vanished, or another program took the flag: no wait
	}
	return before.usable() != n.usable() || before.mac != n.mac || before.failed != n.failed
}

// due reports whether resolution of the neighbour has to be requested.
func (w *watched) due(now time.Time) bool {
	if w.managed || w.foreign() {
		return false
	}
	wait := probeUnresolved
	if w.usable() {
		wait = probeResolved
	}
	return now.Sub(w.probed) >= wait
}

// depend makes keys the neighbours that an entry depends on. New ones come
// before old ones go, so that shared ones stay.
func (t *table) depend(e *entry, keys []neighbourKey) {
	before := e.neighbours
	if slices.Equal(before, keys) {
		return
	}
	e.neighbours = keys
	for _, key := range keys {
		t.watch(key, e)
	}
	for _, key := range before {
		if !slices.Contains(keys, key) {
			t.unwatch(key, e)
		}
	}
}

func (t *table) watch(key neighbourKey, e *entry) {
	w, ok := t.neighbours[key]
	if !ok {
		w = &watched{key: key}
		t.neighbours[key] = w
		t.read(w)
		t.probe(w)
	}
	w.users.add(e)
}

func (t *table) unwatch(key neighbourKey, e *entry) {
	w, ok := t.neighbours[key]
	if !ok {
		return
	}
	if !w.users.remove(e) || !w.users.empty() {
		return
	}
	delete(t.neighbours, key)
	delete(t.suspects, w)
	t.release(w)
}

// read reads the kernel's entry of a neighbour. A failure leaves it
// unknown, which a probe or an event ends.
func (t *table) read(w *watched) {
	n, err := t.kernel.neighbour(w.key)
	if err != nil {
		t.log.Warn("neighbour unknown", "address", w.key.address, "interface", t.view.links[w.key.index].name, "error", err)
	}
	w.learn(n)
}

// probe makes the kernel resolve a neighbour if that is due. Its answer comes as
// an event.
func (t *table) probe(w *watched) {
	now := time.Now()
	if !w.due(now) {
		return
	}
	w.probed = now
	refused := t.kernel.probe(w.key, w.state != 0)
	if (refused == nil) != (w.refused == nil) {
		t.staleUsers(w)
	}
	w.refused = refused
}

// release gives a neighbour back to the kernel, if it was Fairlead that made it
// keep the entry.
func (t *table) release(w *watched) {
	ours := w.marked || (!w.managed && !w.probed.IsZero())
	if !ours || w.foreign() {
		return
	}
	if err := t.kernel.release(w.key); err != nil {
		t.log.Warn("neighbour stays managed", "address", w.key.address, "error", err)
	}
}

func (t *table) staleUsers(w *watched) {
	for e := range w.users.all() {
		t.stale[e] = struct{}{}
	}
}

// set is a set of pointers. Most have one element, of many thousands of sets: only more take
// a map.
type set[T any] struct {
	one  *T // nil if the set is empty, or has a map
	more map[*T]struct{}
}

func (s *set[T]) add(e *T) {
	switch {
	case s.more != nil:
		s.more[e] = struct{}{}
	case s.one == nil || s.one == e:
		s.one = e
	default:
		s.more, s.one = map[*T]struct{}{s.one: {}, e: {}}, nil
	}
}

// remove reports whether the element was in the set.
func (s *set[T]) remove(e *T) bool {
	_, found := s.more[e]
	delete(s.more, e)
	if s.one == e {
		s.one, found = nil, true
	}
	return found
}

func (s *set[T]) empty() bool { return s.one == nil && len(s.more) == 0 }

func (s *set[T]) all() iter.Seq[*T] {
	if s.one == nil {
		return maps.Keys(s.more)
	}
	return func(yield func(*T) bool) { yield(s.one) }
}
