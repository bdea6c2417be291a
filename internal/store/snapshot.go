// SPDX-License-Identifier: Apache-2.0

package store

import (
	"iter"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// Entry is one desired service. Its service is immutable.
type Entry struct {
	// Service is the service for the data plane: the configured service with
	// health and drains merged in (merge.go). It is the same pointer as long as the
	// service is the same. Its backends are sorted by ID.
	Service *lb.Service
	// Revision is the snapshot's at which Service last changed, Changed the time of
	// it.
	Revision uint64
	Changed  time.Time
	// Configured is the service as its source described it. Health checks use it, and
	// so also probe backends that are down or drained.
	Configured *lb.Service
	// Health has the last verdict on each backend that has one. Judged is the snapshot's revision at which it last changed.
	Health map[lb.BackendID]health.State
	Judged uint64
	// Healthy counts the backends that no verdict found unhealthy. Panic says that so
	// few are healthy that verdicts are ignored.
	Healthy int
	Panic   bool
	// OnBackups says that backups get new flows, as no other backend can.
	OnBackups bool
	// Drained says that the whole service is drained.
	Drained bool
	// Status is nil until the data plane has been called for the service.
	Status *Status
}

// Unhealthy returns the backends that verdicts found unhealthy, with these.
func (e *Entry) Unhealthy() iter.Seq2[lb.BackendID, health.State] {
	return func(yield func(lb.BackendID, health.State) bool) {
		if e.Configured.Health == nil || e.Healthy == len(e.Service.Backends) {
			return
		}
		for i := range e.Service.Backends {
			id := e.Service.Backends[i].ID()
			if state := e.Health[id]; state.Known && !state.Healthy && !yield(id, state) {
				return
			}
		}
	}
}

// Snapshot is the desired state at one revision. It is immutable.
type Snapshot struct {
	// Revision grows by one with each change of desired services. 0 means that they
	// aren't known yet, which differs from no services.
	Revision uint64
	// Incomplete is set while more services are desired, which aren't known yet.
	Incomplete bool
	// Services are sorted by VIP.
	Services []Entry
	// Drains are set by operators, sorted by Target. Their targets need not be
	// desired.
	Drains []Drain
	// Deleting are the statuses of services that are no longer desired but not yet
	// deleted, sorted by VIP.
	Deleting []*Status
}

// find returns the index of the service with a VIP.
func (s Snapshot) find(vip lb.VIP) (at int, found bool) {
	return slices.BinarySearchFunc(s.Services, vip, func(e Entry, vip lb.VIP) int {
		return e.Service.VIP.Compare(vip)
	})
}

// Find returns the service with a VIP.
func (s Snapshot) Find(vip lb.VIP) (Entry, bool) {
	at, found := s.find(vip)
	if !found {
		return Entry{}, false
	}
	return s.Services[at], true
}
