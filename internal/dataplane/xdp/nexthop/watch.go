// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"slices"
	"time"
)

// depend makes keys the neighbours that an entry depends on. New ones come
// before old ones go, so that what several need stays.
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
		w = &watched{key: key, users: map[*entry]struct{}{}}
		t.neighbours[key] = w
		t.read(w)
		t.probe(w)
	}
	w.users[e] = struct{}{}
}

func (t *table) unwatch(key neighbourKey, e *entry) {
	w, ok := t.neighbours[key]
	if !ok {
		return
	}
	delete(w.users, e)
	if len(w.users) > 0 {
		return
	}
	delete(t.neighbours, key)
	delete(t.suspects, w)
	t.release(w)
}

// read asks the kernel what it knows of a neighbour. A failure leaves it
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

// releaseAll ends the following of everything.
func (t *table) releaseAll() {
	for vip := range t.owners {
		t.forget(vip)
	}
}

func (t *table) staleUsers(w *watched) {
	for e := range w.users {
		t.stale[e] = struct{}{}
	}
}
