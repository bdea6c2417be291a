// SPDX-License-Identifier: Apache-2.0

package source

import (
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Follow says where a node follows the backends of a service of its file: Service or DNS is set.
type Follow struct {
	// Service is a Service of Kubernetes in the node's own namespace, Port the name or the number of a port of its
	// endpoints.
	Service, Port string
	// DNS is an absolute name. With SRV its records of that type are the backends, else its A and AAAA records at
	// the port Number.
	DNS    string
	SRV    bool
	Number uint16
}

// String returns for example "Service web, port http" or "SRV records of _http._tcp.example.com".
func (f Follow) String() string {
	switch {
	case f.Service != "":
		return "Service " + f.Service + ", port " + f.Port
	case f.SRV:
		return "SRV records of " + f.DNS
	default:
		return "addresses of " + f.DNS
	}
}

// ReportBackends takes an answer about the backends of a service: all of them, and the problems of others; or the error for
// which there is none.
type ReportBackends func(backends []lb.Backend, problems []string, err error)

// FollowedBackends is the state of a service whose backends are followed.
type FollowedBackends struct {
	Service string `json:"service"`
	// From says where they are followed.
	From string `json:"from"`
	// Backends is their number, with those that are drained as they have left.
	Backends int `json:"backends"`
	// Answered is when they were known to be current for the last time, or an earlier agent has saved them; zero before
	// the first answer.
	Answered time.Time `json:"answered,omitzero"`
	// Error is why there has been no answer since then; empty if there was.
	Error string `json:"error,omitempty"`
	// Awaited is set if the agent isn't ready before the first answer.
	Awaited bool `json:"awaited,omitempty"`
	// Problems are backends that aren't used, and why.
	Problems []string `json:"problems,omitempty"`
}

// Followed is the state of all that a node follows besides its file.
type Followed struct {
	// Cluster is the API server of its cluster, Clouds one for clouds; nil for none.
	Cluster, Clouds *State
	// Backends are sorted by service.
	Backends []FollowedBackends
}
