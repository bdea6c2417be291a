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
