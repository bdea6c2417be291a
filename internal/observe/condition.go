// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// healthOf says what is known of a backend of a service.
func healthOf(entry store.Entry, id lb.BackendID) Health {
	state, judged := entry.Health[id]
	h := Health{Reason: state.Reason, Since: state.Since, Took: state.Took}
	switch {
	case entry.Configured.Health == nil:
		return Health{State: HealthUnchecked}
	case !judged || !state.Known:
		h.State = HealthChecking
	case state.Healthy:
		h.State = HealthHealthy
	default:
		h.State = HealthUnhealthy
	}
	return h
}

// String says how the backend's health is, and how the last probe failed.
func (h Health) String() string {
	if h.Reason == "" {
		return string(h.State)
	}
	return fmt.Sprintf("%s: %s", h.State, oneLine(h.Reason))
}

// add counts one service, or one backend.
func (c *ServiceCounts) add(s Service) {
	c.Total++
	c.Programmed += one(s.Programmed)
	c.Failed += one(s.Error != "")
	c.Panic += one(s.Panic)
	c.Drained += one(s.Drained)
}

func (c *BackendCounts) add(b Backend) {
	c.Total++
	c.InUse += one(b.InUse)
	c.Unhealthy += one(b.Health.State == HealthUnhealthy)
	c.Drained += one(b.Drained)
}

func one(holds bool) int {
	if holds {
		return 1
	}
	return 0
}
