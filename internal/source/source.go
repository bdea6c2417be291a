// SPDX-License-Identifier: Apache-2.0

// Package source defines what a node learns from outside: the services that it
// is to serve, and the peers that it announces them to. Every source hands over
// the same Update, which the agent's intake takes.
package source

import (
	"context"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

// Source delivers updates.
type Source interface {
	// Run calls apply until ctx ends, one call at a time: first with a Whole update,
	// then with each change. An error of apply means that the update was refused as a
	// whole: Run returns the error if nothing was applied before.
	Run(ctx context.Context, apply func(Update) error) error
}

// Update is a change of the services or the routes of a node.
type Update struct {
	// Whole says that Changed and Leaving are all services: the node stops serving
	// every other one. Without Whole, services that aren't listed stay as they are.
	Whole bool
	// Changed are new services and those that differ from before. Their names and
	// their VIPs are distinct.
	Changed []lb.Service
	// Removed are the VIPs that the node stops serving at once.
	Removed []lb.VIP
	// Leaving are the VIPs that other nodes serve from now on: the node stops serving
	// them once routers send their traffic elsewhere.
	Leaving []lb.VIP
	// Incomplete says that the node serves more services, which aren't known yet: the services of an earlier
	// agent stay in the data plane until an update without it.
	Incomplete bool
	// Routes says how VIPs are announced; nil: as before.
	Routes *Routes
}

// Routes is how a node announces its VIPs.
type Routes struct {
	Peers    []bgp.Peer
	Policies []bgp.Policy
	// ShutdownDelay is bgp.Config's.
	ShutdownDelay time.Duration
}

// Shutdown is the plan of an agent for SIGTERM.
type Shutdown struct {
	// Reason says why the node leaves with its agent, so that it has to be drained;
	// empty if another agent takes over.
	Reason string
	// Permanent says that no agent will run here again: nothing is left on the node.
	Permanent bool
}
