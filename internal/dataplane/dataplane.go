// SPDX-License-Identifier: Apache-2.0

// Package dataplane is the interface between the desired state and the packet
// forwarder. Reconcile drives one DataPlane with idempotent calls, one service at a
// time. Package xdp forwards packets in the kernel; test/dataplane has a data plane in
// memory and the suite that all pass, each the tests within its Limits.
package dataplane

import (
	"context"
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// DataPlane balances packets for a set of services. Its methods may be called
// from several goroutines.
type DataPlane interface {
	// Update makes the data plane balance svc as described, and nothing else
	// changes. It is idempotent. On an error the service is left as it was
	// before: balanced as last programmed, or not at all. A backend that can't
	// be used now is not an error: it is left out, and Programmed has the reason.
	Update(ctx context.Context, svc *lb.Service) (Programmed, error)
	// Delete stops balancing vip. Deleting an unknown VIP is not an error.
	Delete(ctx context.Context, vip lb.VIP) error
	// Prune deletes every service that is not in keep, also those that an
	// earlier process left behind.
	Prune(ctx context.Context, keep []lb.VIP) error
	// Stale delivers the VIPs of services whose programming is out of date, for
	// example because a next hop changed: the receiver calls Update again. The
	// channel is never closed; a VIP that is queued is not queued twice.
	Stale() <-chan lb.VIP
	// Stats returns a copy of all counters. They only grow while a data plane
	// has the service, and may be some seconds late.
	Stats(ctx context.Context) (Stats, error)
	// Close ends this process's part of the data plane. The kernel continues to
	// balance packets.
	Close() error
}

// Attacher is a data plane that packets reach only once it is attached.
type Attacher interface {
	// Prepare may be called, with the first services, while they are programmed, so that
	// Attach takes less time.
	Prepare(services []*lb.Service)
	// Attach is called once, when the first services have been programmed.
	Attach(ctx context.Context) error
	// KeepAttached attaches interfaces again that are deleted and created again, from
	// Attach until ctx ends. It calls report when the reason changes why packets of a
	// configured interface don't reach the data plane; nil is that all do.
	KeepAttached(ctx context.Context, report func(missing error))
}

// Discarder is a data plane that discards packets for addresses without a service, which
// the kernel would route back to the router that sent them.
type Discarder interface {
	// Discard makes prefixes, which are announced as a whole, all those whose unused
	// addresses get no packets. The addresses of VIPs never do.
	Discard(prefixes []netip.Prefix) error
}

// RefusalReporter is a data plane that reports refused connections.
type RefusalReporter interface {
	// Refused never blocks the data plane; the channel is never closed. It is nil if
	// the data plane doesn't see the answers.
	Refused() <-chan Refusal
}

// Refusal is a backend's TCP reset in answer to a client's first packet. Only data
// planes that process the answers report it.
type Refusal struct {
	VIP     lb.VIP
	Backend lb.BackendID
}

// Programmed is Update's result of a service.
type Programmed struct {
	// DataPlane is the kind of data plane that has the service, where there may be several;
	// Reason is why it isn't the first choice.
	DataPlane string `json:"dataplane,omitempty"`
	Reason    string `json:"dataplaneReason,omitempty"`
	// RingSize is the number of entries of the service's Maglev ring, or without Limits.Rings
	// the sum of RingEntries; 0 if no backend is in use.
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
	// RingEntries is the number of ring entries that point to the backend, or without
	// Limits.Rings its weight in the data plane; 0 if it is not in use.
	RingEntries int `json:"ringEntries"`
}

// Traffic counts packets and the bytes of their frames, as they were received.
type Traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// NewFlows counts new flows: with TCP each SYN, retransmitted ones included;
	// with UDP, whose first packet isn't marked, the newly recorded flows
	// (Tracking.Inserts); with NAT, sessions.
	NewFlows uint64 `json:"newFlows"`
}

// Add returns the sum of two counts.
func (t Traffic) Add(o Traffic) Traffic {
	return Traffic{Packets: t.Packets + o.Packets, Bytes: t.Bytes + o.Bytes, NewFlows: t.NewFlows + o.NewFlows}
}

// Sub returns the traffic since the count o.
func (t Traffic) Sub(o Traffic) Traffic {
	return Traffic{Packets: t.Packets - o.Packets, Bytes: t.Bytes - o.Bytes, NewFlows: t.NewFlows - o.NewFlows}
}

// Stats is one reading of all counters.
type Stats struct {
	// Exits counts packets by the way they left the data plane, by the counter's
	// name. Every packet is counted in exactly one.
	Exits map[string]uint64
	// Services counts forwarded packets.
	Services map[lb.VIP]ServiceStats
}

// ServiceStats counts the packets that were forwarded for one service.
type ServiceStats struct {
	// Traffic is the service's total; it includes backends that have left.
	Traffic
	// Backends are the present ones, sorted; of those that an earlier process left only
	// the IDs are known. Shares holds the traffic of each.
	Backends []lb.Backend
	Shares   []Traffic
	Tracking Tracking
}

// Backend returns the traffic of a present backend.
func (s ServiceStats) Backend(id lb.BackendID) (t Traffic, present bool) {
	at, present := lb.FindBackend(s.Backends, id)
	if present {
		t = s.Shares[at]
	}
	return t, present
}

// Tracking counts a service's recorded flows (docs/design/tracking.md).
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
	// Unrecorded counts new flows that were not recorded, as there were too many.
	Unrecorded uint64 `json:"unrecorded"`
}

// Add returns the sum of two services'.
func (t Tracking) Add(o Tracking) Tracking {
	return Tracking{
		Unstable: t.Unstable + o.Unstable, Flows: t.Flows + o.Flows, Evictions: t.Evictions + o.Evictions,
		Hits: t.Hits + o.Hits, Misses: t.Misses + o.Misses, Inserts: t.Inserts + o.Inserts, Unrecorded: t.Unrecorded + o.Unrecorded,
	}
}
