// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"math"
	"time"
)

// Demand is one kind of load of a group, and how much of it one node should carry at most.
type Demand struct {
	// Unit of both, such as "packets per second".
	Unit          string
	Load, PerNode float64
}

// SizeRequest is the input of a group's size.
type SizeRequest struct {
	// Size is the current size, Nodes the number of nodes, which is less without enough spare nodes.
	Size, Nodes int
	// Min and Max bound the size.
	Min, Max int
	Demands  []Demand
	// Complete is false if the load of some nodes isn't known: Demands is without it, or has an old one.
	Complete bool
	// DownAfter is how long fewer nodes have to be enough before one is given back.
	DownAfter time.Duration
}

// SizeHistory is a size, and the parts of former ones that the next decision needs. It is zero
// for a group without history, as after a restart.
type SizeHistory struct {
	Size int
	// Changed is when the load last changed the size; zero if that isn't known.
	Changed time.Time
	// Needed is when fewer nodes were last too few, or not known to be enough.
	Needed time.Time
}

const (
	// SizePause is the shortest time from a change of the size to an increase. Meanwhile routers
	// move flows to other nodes, and the load, an average of one minute that is up to one minute
	// old, may have a flow on two nodes.
	SizePause = 3 * time.Minute
	// shrunkShare is the portion of Demand.PerNode that nodes may carry after one was given back.
	shrunkShare = 0.9
)

// SizeGroup decides the size of a group. If the nodes carry too much, the size is at once the number
// of nodes that the load needs, unless the group waits for spare nodes already. A node is given back
// if for DownAfter one node fewer would have been enough, with a reserve; one at a time, but places
// without a node together. A load that isn't known completely gives back none.
func SizeGroup(r SizeRequest, h SizeHistory, now time.Time) SizeHistory {
	size := min(max(r.Size, r.Min), r.Max)
	if h.Size != size { // without history, or Min or Max have changed
		h.Size, h.Needed = size, now
	}
	wanted, fewest := r.nodes(1), r.nodes(shrunkShare)
	if !r.Complete || fewest >= size {
		h.Needed = now
	}
	switch {
	case wanted > size && size < r.Max && r.Nodes >= size && now.Sub(h.Changed) >= SizePause:
		size = min(wanted, r.Max)
	case size > r.Min && now.Sub(h.Needed) >= r.DownAfter:
		size = max(fewest, min(size-1, r.Nodes), r.Min)
	default:
		return h
	}
	return SizeHistory{Size: size, Changed: now, Needed: now}
}

// nodes returns how many nodes, Max+1 at most, carry the load if each has a share of Demand.PerNode.
func (r *SizeRequest) nodes(share float64) int {
	count := 0.0
	for _, d := range r.Demands {
		count = max(count, math.Ceil(d.Load/(d.PerNode*share)))
	}
	return int(min(count, float64(r.Max+1)))
}
