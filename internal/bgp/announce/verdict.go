// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/store"
)

// World is what is known at one moment.
type World struct {
	Desired store.Snapshot
	// Programmed are the services' statuses, sorted by VIP.
	Programmed []reconcile.Status
	// Working says that the data plane has been put to work.
	Working bool
	// Stopping says that the agent is about to end, and moves all traffic away.
	Stopping bool
	// Moving are the names of services that are about to be drained.
	Moving map[string]bool
}

// standing is what a service means for its address.
type standing int

const (
	// absent: packets can't be served here.
	absent standing = iota
	// leaving: packets are served, but are to go elsewhere.
	leaving
	serving
)

// verdict is what one service speaks for.
type verdict struct {
	service string
	standing
	// reason is why it doesn't stand for serving.
	reason string
	// withheld says that an operator, or the agent's end, keeps it back.
	withheld bool
	// local says that no route leads to the service, whatever its state.
	local bool
}

// judge says what a service stands for.
func (w *World) judge(e *store.Entry, status *reconcile.Status) verdict {
	v := verdict{service: e.Configured.Name}
	if segment := e.Configured.Segment; segment.Tagged() {
		v.local, v.reason = true, fmt.Sprintf("%s: in %s, where no route of this node leads", v.service, segment)
		return v
	}
	if e.Configured.Unannounced {
		v.local, v.reason = true, v.service+": served for other nodes"
		return v
	}
	if !w.Working {
		v.reason = "the data plane is not at work yet"
		return v
	}
	wish := w.wish(e)
	lacks := lacking(e, status)
	v.withheld = wish != ""
	switch {
	case v.withheld && lacks == "":
		v.standing, v.reason = leaving, wish
	case v.withheld:
		v.reason = wish
	case lacks != "":
		v.reason = v.service + ": " + lacks
	default:
		v.standing = serving
	}
	return v
}

// wish is why somebody wants the service's packets to go elsewhere; empty if
// nobody does.
func (w *World) wish(e *store.Entry) string {
	_, drained := w.Desired.Draining(store.Target{})
	switch {
	case w.Stopping:
		return "the agent stops"
	case drained:
		return "node drained"
	case e.Drained, w.Moving[e.Configured.Name]:
		return e.Configured.Name + ": drained"
	}
	return ""
}

// lacking says what a service lacks to be served; empty if nothing. Backends
// count if they are healthy by what is known now, and in use in the data plane:
// whichever changes first takes the route away.
func lacking(e *store.Entry, status *reconcile.Status) string {
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
	if used, reason := inUse(svc, status); used < svc.MinHealthy {
		return fmt.Sprintf("%d of %d backends in use, %d wanted%s", used, len(svc.Backends), svc.MinHealthy, reason)
	}
	return ""
}

// usable reports whether health and drains let a backend have new flows.
func usable(b *lb.Backend) bool { return b.Weight > 0 && !b.Down && !b.Drained }

// inUse counts the usable backends that the data plane uses, and says of the
// first that it doesn't use why not. Both lists are sorted by ID, but the data
// plane's may be of an earlier version of the service.
func inUse(svc *lb.Service, status *reconcile.Status) (n int, reason string) {
	programmed := status.State.Backends
	for i := range svc.Backends {
		id := svc.Backends[i].ID()
		for len(programmed) > 0 && programmed[0].ID.Compare(id) < 0 {
			programmed = programmed[1:]
		}
		if !usable(&svc.Backends[i]) || len(programmed) == 0 || programmed[0].ID != id {
			continue
		}
		if programmed[0].InUse {
			n++
		} else if reason == "" && programmed[0].Reason != "" {
			reason = fmt.Sprintf(" (%s: %s)", id, programmed[0].Reason)
		}
	}
	return n, reason
}
