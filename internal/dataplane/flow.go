// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// FlowLister is a data plane that records flows.
type FlowLister interface {
	// Flows lists recorded flows; CountFlows counts the live ones of all backends.
	Flows(ctx context.Context, query FlowQuery) (Flows, error)
	CountFlows(ctx context.Context) (FlowCounts, error)
}

// Flow is a recorded flow.
type Flow struct {
	VIP    lb.VIP         `json:"vip"`
	Client netip.AddrPort `json:"client"`
	// Backend is where the flow's packets go; missing if that backend has left,
	// so that the record no longer counts.
	Backend lb.BackendID `json:"backend,omitzero"`
	// Age is the time since the flow's last packet. It is exact to some
	// milliseconds for a silent flow; a busy flow's record is not written for
	// each packet.
	Age time.Duration `json:"age"`
	// Closing is set when the client has closed. The record stays for a while for
	// packets that are still in flight.
	Closing bool `json:"closing,omitempty"`
}

// FlowQuery selects recorded flows.
type FlowQuery struct {
	// VIP is the service's; the zero VIP stands for all.
	VIP lb.VIP
	// Client is a prefix of the client's address; the zero prefix stands for all.
	Client netip.Prefix
	// Limit is the largest number of flows in the answer; the latest are chosen.
	Limit int
}

// Flows answers a FlowQuery. Records come and go while they are counted.
type Flows struct {
	// Flows are the latest first.
	Flows []Flow `json:"flows"`
	// Matching is the number of records that the query is about, of which Flows
	// may be a part only.
	Matching int `json:"matching"`
	// Records is the number of recorded flows of all services, Capacity the number
	// that there is room for.
	Records  int `json:"records"`
	Capacity int `json:"capacity"`
}

// FlowCounts is the number of live recorded flows of each backend: those whose
// client has neither been silent for the service's idle time-out, nor closed and
// been silent for a few seconds since. Backends without any are missing.
type FlowCounts map[lb.VIP]map[lb.BackendID]int
