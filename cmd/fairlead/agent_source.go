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
	// leaves says why the node goes with an agent that is told to end, so that it has to
	// be drained; empty if another agent will follow.
	leaves() string
	// kubernetes is how the API server is followed; nil without one.
	kubernetes() *observe.Kubernetes
}

// fileSource is a file that has everything.
type fileSource struct {
	*file.Source[*file.Config]
}

func (s fileSource) run(ctx context.Context, a *agent) error { return s.Run(ctx, a.apply) }

func (fileSource) leaves() string { return "the agent is told to end" }

func (fileSource) kubernetes() *observe.Kubernetes { return nil }
