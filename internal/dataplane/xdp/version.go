// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
	"fairlead.io/fairlead/internal/nexthop"
)

// version is one state of a service in the tables. It is immutable once packets
// see it. The next version shares its unchanged elements.
type version struct {
	ring  *tracking.Ring
	slots []slot
	// numbers are the slots by their backends; nil before number is called. The plane's
	// mu guards it.
	numbers map[lb.BackendID]uint16
	flags   table.BalancerViewFlag
	options table.Options
	// built is the input of the ring's last construction, size its size, and
	// desired the slots in the result; built is nil if the ring was adopted.
	built   []maglev.Backend
	size    int
	desired []uint16
	// learned is when the flows that the step from ring to desired would move
	// have been recorded, and learning when that began; 0 if there is nothing to wait for.
	learned, learning time.Duration
}

// clone begins the version after v, equal to it.
func (v *version) clone() *version {
	n := *v
	n.slots = slices.Clone(v.slots)
	n.numbers = nil
	return &n
}

// has reports whether the view has a flag.
func (v *version) has(flag table.BalancerViewFlag) bool { return v.flags&flag != 0 }

// programmed describes the version in the order of the service's backends.
func (v *version) programmed(pl *plan) dataplane.Programmed {
	defer func() { v.numbers = nil }()
	shares := make([]int, len(v.slots))
	for _, e := range v.ring.Entries {
		if n := tracking.Slot(e); n != tracking.None {
			shares[n]++
		}
	}
	out := dataplane.Programmed{Backends: make([]dataplane.BackendState, len(pl.svc.Backends))}
	if !v.has(table.BalancerViewFlagVIEW_EMPTY) {
		out.RingSize = len(v.ring.Entries)
	}
	for i, b := range pl.svc.Backends {
		at, _ := lb.FindBackend(pl.backends[:len(pl.ring)], b.ID())
		n, _ := v.number(b.ID())
		out.Backends[i] = backendState(pl.svc, b, pl.hops[at], shares[n])
	}
	return out
}

// backendState is whether a backend with that number of ring entries is in use, and
// why not.
func backendState(svc *lb.Service, b lb.Backend, hop nexthop.Result, entries int) dataplane.BackendState {
	st := dataplane.BackendState{ID: b.ID(), RingEntries: entries}
	if hop.Err == nil {
		st.NextHop = describe(svc, b, hop.Hop)
	}
	switch {
	case b.Down:
		st.Reason = "unhealthy"
	case hop.Err != nil:
		st.Reason = hop.Err.Error()
	case b.Drained:
		st.Reason = "drained"
	case b.Weight == 0:
		st.Reason = "weight is 0"
	case entries == 0:
		st.Reason = "waits until the flows that it would move are learned"
	default:
		st.InUse = true
	}
	return st
}
