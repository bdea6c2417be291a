// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// DrainTarget is what an operator drains: a backend of a service, a whole
// service, or, if neither is given, the node.
type DrainTarget struct {
	// Service is a service's name.
	Service string `json:"service,omitempty"`
	// Backend is one of its backends. In a request the port may be 0: then it is
	// every backend at that address.
	Backend lb.BackendID `json:"backend,omitzero"`
}

// Covers reports whether an operator who names t means o, which is complete.
func (t DrainTarget) Covers(o DrainTarget) bool {
	if t.Service != o.Service || t.Backend.Addr() != o.Backend.Addr() {
		return false
	}
	return t.Backend.Port() == 0 || t.Backend == o.Backend
}

// String is for people: "node", "web", "web 10.0.0.21" or "web 10.0.0.21:80".
func (t DrainTarget) String() string {
	switch {
	case t == DrainTarget{}:
		return "node"
	case !t.Backend.Addr().IsValid():
		return t.Service
	case t.Backend.Port() == 0:
		return t.Service + " " + t.Backend.Addr().String()
	}
	return t.Service + " " + t.Backend.String()
}

// Drain is one drain and how far it has come.
type Drain struct {
	DrainTarget
	Since time.Time `json:"since"`
	// Desired says that the target is in the configuration.
	Desired bool `json:"desired"`
	// Flows is the number of live recorded flows that are left.
	Flows int `json:"flows"`
	// PacketsPerSecond still arrive: for the target's backends, or for any VIP of
	// the node.
	PacketsPerSecond float64 `json:"packetsPerSecond"`
	// Silent is how much longer a flow that has sent nothing since the drain began
	// may be there without being seen; it is recorded as soon as it speaks.
	Silent time.Duration `json:"silent"`
}
