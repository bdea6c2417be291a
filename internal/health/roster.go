// SPDX-License-Identifier: Apache-2.0

package health

import (
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// burst is how many new backends are probed at once; the others wait for their
// part of the first interval.
const burst = 256

// Set says which services there are: all of them, as they are configured. What
// is known of a backend stays as long as its service and its check do. Setting
// the same services again changes nothing.
func (m *Monitor) Set(services []lb.Service) {
	m.mu.Lock()
	r := roster{Monitor: m, now: time.Now(), present: make(map[subject]bool, len(m.present)), probers: make(map[string]Prober)}
	for i := range services {
		r.add(&services[i])
	}
	r.removeOthers()
	r.startNew()
	m.present = r.present
	m.mu.Unlock()
	for _, release := range r.released {
		release()
	}
}

// roster is one Set in the making.
type roster struct {
	*Monitor
	now time.Time
	// present says of each backend whether it is checked.
	present map[subject]bool
	probers map[string]Prober // by lb.HealthCheck.WireKey
	started []*target
	// released is to be called without the lock.
	released []func()
}

func (r *roster) add(svc *lb.Service) {
	if svc.Health == nil {
		for _, b := range svc.Backends {
			r.present[subject{svc.VIP, b.ID()}] = false
		}
		return
	}
	own := *svc // the caller's may change
	wire := own.Health.WireKey()
	for _, b := range own.Backends {
		s := subject{own.VIP, b.ID()}
		r.present[s] = true
		r.enrol(s, &own, b, newTargetKey(&own, b, wire))
	}
}

// enrol makes a backend a member of its target, if it isn't that already.
func (r *roster) enrol(s subject, svc *lb.Service, backend lb.Backend, key targetKey) {
	b := r.members[s]
	if b != nil && b.target.key == key {
		b.configure(svc.Health)
		b.passive = svc.Health.Passive
		b.target.service, b.target.backend = svc, backend
		return
	}
	initial := Initial(svc.Health, r.joins(s))
	if b != nil { // its check has changed
		initial.Healthy = b.Healthy
		r.remove(b)
	}
	b = &member{subject: s, machine: newMachine(svc.Health, initial), passive: svc.Health.Passive}
	b.task = newTask(r.Monitor.growth(b))
	b.target = r.target(svc, backend, key)
	b.target.members = append(b.target.members, b)
	r.members[s] = b
	r.note(b)
}

// joins reports whether a backend was not there at the last Set.
func (r *roster) joins(s subject) bool {
	_, known := r.Monitor.present[s]
	return !known && r.Monitor.present != nil
}

// target returns the target of that key. A new one is not in the schedule yet.
func (r *roster) target(svc *lb.Service, backend lb.Backend, key targetKey) *target {
	if t := r.targets[key]; t != nil {
		t.service, t.backend = svc, backend
		return t
	}
	p := r.probers[key.wire]
	if p == nil {
		p = r.newProber(svc.Health)
		r.probers[key.wire] = p
	}
	t := &target{key: key, service: svc, backend: backend, check: svc.Health, prober: p}
	t.task = newTask(func(time.Time) *target { return t })
	r.targets[key] = t
	r.started = append(r.started, t)
	return t
}

func (r *roster) removeOthers() {
	for s, b := range r.members {
		if !r.present[s] {
			r.remove(b)
		}
	}
}

// remove ends a member, and its target with its last one.
func (r *roster) remove(b *member) {
	t := b.target
	r.schedule.drop(&b.task)
	delete(r.members, b.subject)
	b.target = nil
	t.leave(b)
	if len(t.members) > 0 {
		return
	}
	r.schedule.drop(&t.task)
	delete(r.targets, t.key)
	if !t.inFlight && t.release != nil { // or else the probe releases the path
		r.released = append(r.released, t.release)
	}
}

// startNew has new targets probed: the first at once, the others spread over
// their interval.
func (r *roster) startNew() {
	spread := max(1, len(r.started)-burst)
	for i, t := range r.started {
		if len(t.members) == 0 {
			continue
		}
		wait := t.check.Interval * time.Duration(max(0, i-burst)) / time.Duration(spread)
		r.plan(&t.task, r.now.Add(wait))
	}
}
