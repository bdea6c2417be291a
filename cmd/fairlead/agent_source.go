// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source/file"
)

// source is where an agent learns what it is to do.
type source interface {
	// Config is what is in force: the node's own settings, and its BGP with all peers.
	Config() *file.Config
	// State is what is known of the file with the settings; Reload reads it again.
	State() file.State
	Reload() error
	// run tells the agent what is desired, until ctx ends.
	run(ctx context.Context, a *agent) error
	// farewell is how an agent ends that is told to, unless ctx ends before that is known.
	farewell(ctx context.Context) farewell
	// forget removes what is kept for a next agent, once run has ended.
	forget() error
	// kubernetes is how the API server is followed; nil without one.
	kubernetes() *observe.Kubernetes
}

// farewell is how an agent takes leave.
type farewell struct {
	// reason says why the node goes with its agent, so that it has to be drained; empty
	// if another agent will follow.
	reason string
	// forever says that no agent comes again: nothing is to be left on the node.
	forever bool
}

// fileSource is a file that has everything.
type fileSource struct {
	*file.Source[*file.Config]
}

func (s fileSource) run(ctx context.Context, a *agent) error { return s.Run(ctx, a.apply) }

func (fileSource) farewell(context.Context) farewell {
	return farewell{reason: "the agent is told to end"}
}

func (fileSource) forget() error { return nil }

func (fileSource) kubernetes() *observe.Kubernetes { return nil }
