// SPDX-License-Identifier: Apache-2.0

// Package dataplane is the seam between what is desired and what moves packets.
//
// Reconcile drives one DataPlane with idempotent calls, one service at a time.
// The implementations are the folders below: xdp moves packets in the kernel,
// fake keeps everything in memory for tests, and contract is the test suite
// that all of them pass.
package dataplane

import (
	"context"

	"fairlead.io/fairlead/internal/lb"
)

// DataPlane balances packets for a set of services. Its methods may be called
// from several goroutines.
type DataPlane interface {
	// Update makes the data plane balance svc as described, and nothing else
	// changes. It is idempotent. On an error the service is left as it was
	// before: balanced as last programmed, or not at all. A backend that can't
	// be used now is no error: it is left out, and Programmed says why.
	Update(ctx context.Context, svc *lb.Service) (Programmed, error)
	// Delete stops balancing vip. Deleting what isn't there is no error.
	Delete(ctx context.Context, vip lb.VIP) error
	// Prune deletes every service that is not in keep, also those that an
	// earlier process left behind.
	Prune(ctx context.Context, keep []lb.VIP) error
	// Stale delivers the VIP of a service whose programming the world has
	// outdated (a next hop changed): the receiver calls Update again. The
	// channel is never closed; a VIP that waits in it is not queued twice.
	Stale() <-chan lb.VIP
	// Stats returns a copy of all counters. They only grow while a service
	// exists.
	Stats(ctx context.Context) (Stats, error)
	// Close ends what the data plane does in this process. Packets that the
	// kernel balances go on being balanced.
	Close() error
}

// Limits says which services a data plane can serve; sources refuse the others.
type Limits struct {
	Forwards []lb.Forward
	// Segments are the segment types that services and backends may have,
	// beside the untagged network.
	Segments []lb.SegmentType
	// MaxServices is the number of services at once, MaxBackends that of the
	// backends of one service.
	MaxServices, MaxBackends int
}

// Refusal says that a backend has answered a client's first packet with a TCP
// reset. Only data planes that see the servers' answers can tell.
type Refusal struct {
	VIP     lb.VIP
	Backend lb.BackendID
}

// Programmed is what Update made of a service.
type Programmed struct {
	// RingSize is the number of entries of the service's Maglev ring; 0 if no
	// backend is in use.
	RingSize int `json:"ringSize"`
	// Backends has one element for each backend of the service, in its order.
	Backends []BackendState `json:"backends"`
}

// InUse counts the backends that get new flows.
func (p Programmed) InUse() int {
	n := 0
	for _, b := range p.Backends {
		if b.InUse {
			n++
		}
	}
	return n
}

// BackendState says whether a backend gets new flows, and why not.
type BackendState struct {
	ID    lb.BackendID `json:"id"`
	InUse bool         `json:"inUse"`
	// Reason says why the backend is not in use; empty if it is.
	Reason string `json:"reason,omitempty"`
	// NextHop describes where its packets are sent, for people: for example
	// "eth0 02:00:00:00:00:01 vlan 100"; empty if unknown.
	NextHop string `json:"nextHop,omitempty"`
	// RingEntries is the number of ring entries that point to the backend.
	RingEntries int `json:"ringEntries"`
}

// Traffic counts packets and the bytes of their frames, as they were received.
type Traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// NewFlows counts flows that began: with TCP each SYN, also one that is sent
	// again; with UDP, where no packet says that it is the first, the flows that
	// were newly remembered (Tracking.Inserts). With NAT it counts sessions.
	NewFlows uint64 `json:"newFlows"`
}

// Add returns the sum of two counts.
func (t Traffic) Add(o Traffic) Traffic {
	return Traffic{Packets: t.Packets + o.Packets, Bytes: t.Bytes + o.Bytes, NewFlows: t.NewFlows + o.NewFlows}
}

// Stats is one reading of all counters.
type Stats struct {
	// Exits counts packets by the way they left the data plane, by the counter's
	// name. Every packet is counted in exactly one.
	Exits map[string]uint64
	// Services counts what was forwarded.
	Services map[lb.VIP]ServiceStats
}

// ServiceStats counts the packets that were forwarded for one service.
type ServiceStats struct {
	// Traffic is the service's total; it includes backends that have gone.
	Traffic
	// Backends holds the present backends' shares.
	Backends map[lb.BackendID]Traffic
	Tracking Tracking
}

// Tracking is what a data plane remembers of a service's flows (DESIGN.md
// §5.2).
type Tracking struct {
	// Unstable is the number of ring entries whose flows are remembered now.
	Unstable int `json:"unstable"`
	// Flows is the number of flows that were remembered when they were last
	// counted, Evictions how many had been forgotten for lack of room by then.
	Flows     int    `json:"flows"`
	Evictions uint64 `json:"evictions"`
	// Hits and Misses count packets whose flow was looked for and was, or was
	// not, remembered with a backend that can be used; Inserts counts flows that
	// were newly remembered.
	Hits    uint64 `json:"hits"`
	Misses  uint64 `json:"misses"`
	Inserts uint64 `json:"inserts"`
}

// Add returns the sum of two services'.
func (t Tracking) Add(o Tracking) Tracking {
	return Tracking{
		Unstable: t.Unstable + o.Unstable, Flows: t.Flows + o.Flows, Evictions: t.Evictions + o.Evictions,
		Hits: t.Hits + o.Hits, Misses: t.Misses + o.Misses, Inserts: t.Inserts + o.Inserts,
	}
}
