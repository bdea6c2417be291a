// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"slices"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// Input is the input of a plan.
type Input struct {
	Desired store.Snapshot
	// Working is set when the data plane is attached.
	Working bool
	// Missing is why packets of a configured interface don't reach the data plane; empty
	// if all do.
	Missing string
	// Stopping is set when the agent moves all traffic away to stop.
	Stopping bool
	// Draining has the names of services that are about to be drained.
	Draining map[string]*drain
}

// routeState is the state of a route.
type routeState int

const (
	// notServing: packets can't be served.
	notServing routeState = iota
	// leaving: packets are served, but should go to other nodes.
	leaving
	serving
)

// serviceState is one service's contribution to its prefix.
type serviceState struct {
	service string
	routeState
	// reason is why it is not serving.
	reason string
	// suppressed is set if an operator, or the agent's stop, takes it out.
	suppressed bool
	// entry is the service itself, if it is serving.
	entry *store.Entry
	// local is set if the service is never announced.
	local bool
	// policy of its VIP, nil without one, and the VLAN in which packets to it arrive.
	policy *bgp.Policy
	vlan   uint16
}

// evaluate returns the state of a service whose VIP has a policy; nil is none.
func (in *Input) evaluate(e *store.Entry, policy *bgp.Policy) serviceState {
	v := serviceState{service: e.Configured.Name, policy: policy}
	if policy != nil {
		v.vlan = policy.VLAN
	} else if segment := e.Configured.Segment; segment.Tagged() {
		v.local, v.reason = true, fmt.Sprintf("%s: no policy has a next hop in %s", v.service, segment)
		return v
	}
	if e.Configured.Unannounced {
		v.local, v.reason = true, v.service+": served for other nodes"
		if in.Working && in.Missing == "" && missing(e) == "" {
			v.routeState = leaving // if it has been announced
		}
		return v
	}
	if !in.Working {
		v.reason = "the data plane is not attached yet"
		return v
	}
	if in.Missing != "" {
		v.reason = in.Missing
		return v
	}
	suppressed := in.suppression(e)
	lacks := missing(e)
	v.suppressed = suppressed != ""
	switch {
	case v.suppressed && lacks == "":
		v.routeState, v.reason = leaving, suppressed
	case v.suppressed:
		v.reason = suppressed
	case lacks != "":
		v.reason = v.service + ": " + lacks
	default:
		v.routeState, v.entry = serving, e
	}
	return v
}

// unsettled reports whether the data plane uses fewer backends of a service than it soon will: some
// haven't been checked yet, or it doesn't have the newest verdicts. Other balancers of the VIP use
// them, and flows may come from there.
func unsettled(e *store.Entry) bool {
	unknown := func(b lb.Backend) bool {
		state, counted := e.Health[b.ID()]
		return counted && !state.Known
	}
	if e.Configured.Health != nil && slices.ContainsFunc(e.Configured.Backends, unknown) {
		return true
	}
	healthy := 0
	for i := range e.Service.Backends {
		if usable(&e.Service.Backends[i]) {
			healthy++
		}
	}
	used, _, reason := inUse(e)
	return used < healthy && reason == ""
}

// suppression is why a service is suppressed; empty if it isn't.
func (in *Input) suppression(e *store.Entry) string {
	_, drained := in.Desired.Draining(store.Target{})
	switch {
	case in.Stopping:
		return "the agent stops"
	case drained:
		return "node drained"
	case e.Drained, in.Draining[e.Configured.Name] != nil:
		return e.Configured.Name + ": drained"
	}
	return ""
}

// missing is why a service can't be served; empty if it can. Backends count if they are
// healthy in the store and in use in the data plane: whichever changes first withdraws
// the route. A change that replaces all backends doesn't: the data plane uses the former
// ones until it has the new ones.
func missing(e *store.Entry) string {
	status := e.Status
	switch {
	case status == nil || status.Programmed == 0 && status.Error == "":
		return "not programmed yet"
	case status.Deleting:
		return "being deleted"
	case status.Programmed == 0:
		return "not programmed: " + status.Error
	}
	svc := e.Service
	healthy := 0
	for i := range svc.Backends {
		if usable(&svc.Backends[i]) {
			healthy++
		}
	}
	if healthy < svc.MinHealthy {
		return fmt.Sprintf("%d of %d backends healthy, %d wanted", healthy, len(svc.Backends), svc.MinHealthy)
	}
	if used, former, reason := inUse(e); used+former < svc.MinHealthy {
		return fmt.Sprintf("%d of %d backends in use, %d wanted%s", used, len(svc.Backends), svc.MinHealthy, reason)
	}
	return ""
}

// usable reports whether health and drains allow new flows to a backend.
func usable(b *lb.Backend) bool { return b.Weight > 0 && !b.Down && !b.Drained }

// inUse counts the usable backends that the data plane uses, and returns why it doesn't
// use the first of the others. Former backends are those that it uses only until it has
// the newest version of the service, without those that are down. Both lists are sorted
// by ID, but the data plane's may be of an earlier version, whose reasons no longer hold.
func inUse(e *store.Entry) (used, former int, reason string) {
	backends := e.Service.Backends
	current := e.Status.Programmed == e.Revision
	pending := !current && e.Status.Error == ""
	for _, programmed := range e.Status.State.Backends {
		for len(backends) > 0 && backends[0].ID().Compare(programmed.ID) < 0 {
			backends = backends[1:]
		}
		desired := len(backends) > 0 && backends[0].ID() == programmed.ID
		switch {
		case desired && usable(&backends[0]):
			if programmed.InUse {
				used++
			} else if current && reason == "" && programmed.Reason != "" {
				reason = fmt.Sprintf(" (%s: %s)", programmed.ID, programmed.Reason)
			}
		case pending && programmed.InUse && (!desired || !backends[0].Down):
			former++
		}
	}
	return used, former, reason
}
