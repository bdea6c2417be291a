// SPDX-License-Identifier: Apache-2.0

package health

import (
	"maps"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// burst is how many new backends are probed at once; the others wait for their
// part of the first interval.
const burst = 256

// Set sets all services, as they are configured. A backend's state stays as long as
// its service and its check do. Setting the same services again changes nothing.
func (m *Monitor) Set(services []lb.Service) {
	m.enrolAll(services, func() []lb.VIP { return slices.Collect(maps.Keys(m.present)) })
}

// Update says which services have changed, or are new, and which are gone: it is as
// Set with all that there are now, but looks at these only.
func (m *Monitor) Update(changed []lb.Service, removed []lb.VIP) {
	m.enrolAll(changed, func() []lb.VIP { return removed })
}

// enrolAll takes services over. It calls removed with the lock held; VIPs that it
// returns and that have changed stay.
func (m *Monitor) enrolAll(changed []lb.Service, removed func() []lb.VIP) {
	m.mu.Lock()
	r := targetChange{Monitor: m, now: time.Now(), next: make(map[lb.VIP]backends, len(changed)), probers: make(map[string]Prober)}
	for i := range changed {
		r.add(&changed[i])
	}
	for _, vip := range removed() {
		if _, changed := r.next[vip]; !changed {
			r.next[vip] = backends{}
		}
	}
	r.settle()
	r.startNew()
	m.config.Earlier = nil
	m.mu.Unlock()
	for _, release := range r.released {
		release()
	}
}

// backends of a service, sorted, and whether they are checked.
type backends struct {
	sorted  []lb.Backend
	checked bool
}

func (b backends) has(id lb.BackendID) bool {
	_, found := lb.FindBackend(b.sorted, id)
	return found
}

// targetChange is one change in the making.
type targetChange struct {
	*Monitor
	now time.Time
	// next are the services that change; those that are gone have no backends.
	next    map[lb.VIP]backends
	probers map[string]Prober // by lb.HealthCheck.WireKey
	started []*target
	// released is to be called without the lock.
	released []func()
}

func (r *targetChange) add(svc *lb.Service) {
	r.next[svc.VIP] = backends{sorted: lb.SortBackends(svc.Backends), checked: svc.Health != nil}
	if svc.Health == nil {
		return
	}
	own := *svc // the caller's may change
	wire := own.Health.WireKey()
	for _, b := range own.Backends {
		r.enrol(subject{own.VIP, b.ID()}, &own, b, newTargetKey(&own, b, wire))
	}
}

// enrol makes a backend a member of its target, if it isn't that already.
func (r *targetChange) enrol(s subject, svc *lb.Service, backend lb.Backend, key targetKey) {
	b := r.members[s]
	if b != nil && b.target.key == key {
		b.configure(svc.Health)
		b.passive = svc.Health.Passive
		b.target.service, b.target.backend = svc, backend
		return
	}
	joins := r.present != nil && !r.present[s.vip].has(s.backend) // a running agent's service didn't have it before
	healthy := svc.Health.Initially == lb.InitiallyHealthy || svc.Health.Initially == lb.InitiallyAuto && !joins
	if b != nil { // its check has changed
		healthy = b.Healthy
		r.remove(b)
	}
	b = &member{subject: s, machine: newMachine(svc.Health, healthy), passive: svc.Health.Passive}
	if len(r.config.Earlier) > 0 {
		if earlier, found := r.config.Earlier[Identity(svc, backend)]; found {
			b.resume(earlier)
		}
	}
	m := r.Monitor
	b.growth = stopped(func() { m.grow(b) })
	b.target = r.target(svc, backend, key)
	b.target.members = append(b.target.members, b)
	r.members[s] = b
	r.note(b)
}

// target returns the target of that key. A new one is not planned yet.
func (r *targetChange) target(svc *lb.Service, backend lb.Backend, key targetKey) *target {
	if t := r.targets[key]; t != nil {
		t.service, t.backend = svc, backend
		return t
	}
	p := r.probers[key.wire]
	if p == nil {
		p = r.config.Prober(svc.Health)
		r.probers[key.wire] = p
	}
	t := &target{key: key, service: svc, backend: backend, check: svc.Health, prober: p}
	m := r.Monitor
	t.timer = stopped(func() { m.begin(t) })
	r.targets[key] = t
	r.started = append(r.started, t)
	return t
}

// settle applies the change. It ends the checks of members that changed services no
// longer have, or don't check.
func (r *targetChange) settle() {
	if r.present == nil {
		r.present = make(map[lb.VIP]backends, len(r.next))
	}
	for vip, next := range r.next {
		if before := r.present[vip]; before.checked {
			for i := range before.sorted {
				id := before.sorted[i].ID()
				if b := r.members[subject{vip, id}]; b != nil && (!next.checked || !next.has(id)) {
					r.remove(b)
				}
			}
		}
		if len(next.sorted) == 0 {
			delete(r.present, vip)
		} else {
			r.present[vip] = next
		}
	}
}

// remove ends a member, and its target with its last one.
func (r *targetChange) remove(b *member) {
	t := b.target
	b.growth.Stop()
	delete(r.members, b.subject)
	b.target = nil
	t.members = slices.DeleteFunc(t.members, func(other *member) bool { return other == b })
	if len(t.members) > 0 {
		return
	}
	t.timer.Stop()
	delete(r.targets, t.key)
	if !t.inFlight && t.release != nil { // or else the probe releases the path
		r.released = append(r.released, t.release)
	}
}

// startNew has new targets probed: the first at once, the others spread over
// their interval.
func (r *targetChange) startNew() {
	spread := max(1, len(r.started)-burst)
	for i, t := range r.started {
		if len(t.members) == 0 {
			continue
		}
		wait := t.check.Interval * time.Duration(max(0, i-burst)) / time.Duration(spread)
		r.plan(t, r.now.Add(wait))
	}
}
