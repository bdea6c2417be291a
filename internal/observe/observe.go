// SPDX-License-Identifier: Apache-2.0

// Package observe shows what an agent does: its state as JSON on a control
// socket, and tables of it for people.
//
// It stands at the end of the story of DESIGN.md §1: it reads the store, the
// reconciler and the data plane's counters, and changes nothing. The requests that
// change something, to reload the configuration and to drain, are handed to those
// who do.
package observe

import (
	"context"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/store"
)

// DefaultSocket is where an agent listens unless it is told otherwise.
const DefaultSocket = "/run/fairlead/agent.sock"

// Agent is what a Server shows. All fields are set; the functions may be called
// from several goroutines.
type Agent struct {
	Version, Commit, Node string
	// Kernel is the release that runs.
	Kernel  string
	Started time.Time
	// Listen is the address of the status page; empty without one.
	Listen string
	// Kind names the data plane, for example "xdp".
	Kind string
	// Config tells how the last reading of the configuration ended.
	Config func() Config
	// Kubernetes tells how the API server is followed; nil without one.
	Kubernetes func() *Kubernetes
	// Attachments tells to which interfaces the data plane is attached.
	Attachments func() []Attachment
	// Desired and Programmed are the two ends of reconcile.
	Desired    func() store.Snapshot
	Programmed func() []reconcile.Status
	// Work is what reconcile has done, Calling since when the data plane has been
	// working on one call of it, zero if it isn't.
	Work    func() reconcile.Work
	Calling func() time.Time
	// Begun says that the first configuration has been tried and the data plane
	// put to work.
	Begun func() bool
	// Stats reads the data plane's counters.
	Stats func(context.Context) (dataplane.Stats, error)
	// Trace tells what the data plane would do with a packet, Flows which flows it
	// has recorded.
	Trace func(context.Context, dataplane.Packet) (dataplane.Trace, error)
	Flows func(context.Context, dataplane.FlowQuery) (dataplane.Flows, error)
	// CountFlows counts the live recorded flows of all backends.
	CountFlows func(context.Context) (dataplane.FlowCounts, error)
	// Drain and Undrain take a target out of service and back; they return when
	// the data plane and the routers have been told, or why the target can't be
	// drained.
	Drain, Undrain func(context.Context, DrainTarget) error
	// Routes tells what is announced, and how the peers are; Routes.Enabled is false
	// without a BGP section.
	Routes func() Routes
	// Events are what happened of late.
	Events *Events
	// Reload reads the configuration again and returns why it was refused.
	Reload func(context.Context) error
}
