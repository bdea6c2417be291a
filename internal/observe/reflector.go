// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"os"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/source"
)

// RoleReflector is Status.Role of a route reflector.
const RoleReflector = "reflector"

// Reflector is a route reflector that is shown. All fields are set; the functions
// may be called from several goroutines.
type Reflector struct {
	Version, Commit, Name string
	Started               time.Time
	// Listen is the address of the metrics; empty without one.
	Listen string
	// Config is the outcome of the last reading of the configuration.
	Config func() source.File
	// Routes are the reflected routes, and the state of clients and routers.
	Routes func() Routes
	// ClientsBack reports whether routers may be connected: clients that were known
	// before the restart are back, or the time for that is over.
	ClientsBack func() bool
	// Refused counts refused connections.
	Refused func() uint64
}

// Ready returns why no router gets routes; nil if one does.
func (r *Reflector) Ready() error {
	if !r.ClientsBack() {
		return errors.New("waiting for clients known before the restart")
	}
	for _, p := range r.Routes().Peers {
		if !p.Dynamic && p.State == bgp.Established {
			return nil
		}
	}
	return errors.New("no session with a router is established")
}

// Shown is Routes with no list missing.
func (r *Reflector) Shown() Routes { return r.Routes().complete() }

// Status is the reflector as a whole, as an agent is shown.
func (r *Reflector) Status() Status {
	return Status{
		Role: RoleReflector, Version: r.Version, Commit: r.Commit, Node: r.Name, PID: os.Getpid(),
		Started: r.Started, Listen: r.Listen, Config: r.Config(), BGP: r.Routes().summary(),
		DataPlane: DataPlane{Attachments: []Attachment{}}, Exits: []Exit{},
	}
}
