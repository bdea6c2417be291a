// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"iter"
	"log/slog"
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

// neighbours are the neighbours that hops of followed targets depend on. They mark the
// entries whose hop may change with one.
type neighbours struct {
	kernel kernel
	log    *slog.Logger
	// links are the view's, stale the table's.
	links map[int]link
	stale map[*entry]struct{}

	watched map[neighbourKey]*watched
	// suspects may need a probe.
	suspects map[*watched]struct{}
}

// state returns the kernel's entry of a neighbour, and why the kernel refuses to resolve it.
func (x *neighbours) state(key neighbourKey) (neighbour, error) {
	if w, ok := x.watched[key]; ok {
		return w.neighbour, w.refused
	}
	return neighbour{}, nil
}

// changed takes the coming, change or going (the zero neighbour) of an entry of the
// neighbour tables.
func (x *neighbours) changed(key neighbourKey, n neighbour) {
	w, ok := x.watched[key]
	if !ok {
		return
	}
	if w.learn(n) {
		x.staleUsers(w)
	}
	if !n.managed {
		x.suspects[w] = struct{}{}
	}
}

// sync reads the state again that events keep up to date otherwise.
func (x *neighbours) sync() {
	for _, w := range x.watched {
		x.read(w)
		x.suspects[w] = struct{}{}
	}
}

// suspectUnmanaged makes suspects of neighbours that the kernel doesn't keep resolved.
func (x *neighbours) suspectUnmanaged() {
	for _, w := range x.watched {
		if !w.managed {
			x.suspects[w] = struct{}{}
		}
	}
}

// probeSuspects probes neighbours that may need it.
func (x *neighbours) probeSuspects() {
	for w := range x.suspects {
		x.probe(w)
	}
	clear(x.suspects)
}

// depend makes keys the neighbours that an entry depends on. New ones come
// before old ones go, so that shared ones stay.
func (x *neighbours) depend(e *entry, keys []neighbourKey) {
	before := e.neighbours
	if slices.EqualFunc(before, keys, func(w *watched, key neighbourKey) bool { return w.key == key }) {
		return
	}
	e.neighbours = nil
	for _, key := range keys {
		e.neighbours = append(e.neighbours, x.watch(key, e))
	}
	for _, w := range before {
		if !slices.Contains(e.neighbours, w) {
			x.unwatch(w, e)
		}
	}
}

func (x *neighbours) watch(key neighbourKey, e *entry) *watched {
	w, ok := x.watched[key]
	if !ok {
		w = &watched{key: key}
		x.watched[key] = w
		x.read(w)
		x.probe(w)
	}
	w.users.add(e)
	return w
}

func (x *neighbours) unwatch(w *watched, e *entry) {
	if !w.users.remove(e) || !w.users.empty() {
		return
	}
	delete(x.watched, w.key)
	delete(x.suspects, w)
	x.release(w)
}

// read reads the kernel's entry of a neighbour. A failure leaves it
// unknown, which a probe or an event ends.
func (x *neighbours) read(w *watched) {
	n, err := x.kernel.neighbour(w.key)
	if err != nil {
		x.log.Warn("neighbour unknown", "address", w.key.address, "interface", x.links[w.key.index].name, "error", err)
	}
	w.learn(n)
}

// probe makes the kernel resolve a neighbour if that is due. Its answer comes as
// an event.
func (x *neighbours) probe(w *watched) {
	now := time.Now()
	if !w.due(now) {
		return
	}
	w.probed = now
	refused := x.kernel.probe(w.key, w.state != 0)
	if (refused == nil) != (w.refused == nil) {
		x.staleUsers(w)
	}
	w.refused = refused
}

// release gives a neighbour back to the kernel, if it was Fairlead that made it
// keep the entry.
func (x *neighbours) release(w *watched) {
	ours := w.marked || (!w.managed && !w.probed.IsZero())
	if !ours || w.foreign() {
		return
	}
	if err := x.kernel.release(w.key); err != nil {
		x.log.Warn("neighbour stays managed", "address", w.key.address, "error", err)
	}
}

func (x *neighbours) staleUsers(w *watched) {
	for e := range w.users.all() {
		x.stale[e] = struct{}{}
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
