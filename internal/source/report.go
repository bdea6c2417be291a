// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// MaxReported bounds each list of a Report.
const MaxReported = 100

// Reporter is a source that publishes what the node serves and has forwarded.
type Reporter interface {
	// Report writes a report, or keeps it until it can be written.
	Report(ctx context.Context, r *Report) error
	// ReportStatistics writes counters, or keeps them.
	ReportStatistics(ctx context.Context, s *Statistics) error
	// Delivered returns the versions of the newest objects of the last update that was accepted.
	Delivered() Versions
	// Draining reports that the source takes the node out of service.
	Draining() bool
}

// Report is what a node serves. Its lists have what isn't as
// it should be, and up to MaxReported entries.
type Report struct {
	// Version is the agent's, Started when it started.
	Version string
	Started time.Time
	// DataPlane has the kinds of all data planes in use: "xdp, ipvs".
	DataPlane string
	// Draining says that the node is being taken out of service.
	Draining bool
	// Observed says which objects the report covers.
	Observed Versions
	Services ReportedServices
	Backends ReportedBackends
	// Announced counts prefixes with a route, Withheld those without, Sessions the established
	// BGP sessions.
	Announced, Withheld, Sessions int
	// WithheldRoutes are prefixes without a route; Withheld counts all.
	WithheldRoutes []WithheldRoute
	// PacketsPerSecond and BitsPerSecond are what was forwarded for all services in the last
	// minute, or in the last seconds while the node drains.
	PacketsPerSecond, BitsPerSecond uint64
	// Failed are services that the data plane refused, Problems objects that aren't served as
	// they are written, each with its first problem.
	Failed, Problems []ReportedProblem
	// OmittedProblems counts the Problems that aren't listed.
	OmittedProblems int
	// Unhealthy are backends that health checks found dead.
	Unhealthy []UnhealthyBackend
	// Peers are the peers with their sessions.
	Peers []ReportedPeer
}

// Versions are the newest resource versions of Services and LoadBalancers that the node has
// programmed, or lists as failed or as problems; empty for none.
type Versions struct{ Services, LoadBalancers string }

// WithheldRoute is a prefix that isn't announced, and why.
type WithheldRoute struct {
	Prefix netip.Prefix
	Reason string
}

// ReportedServices counts services.
type ReportedServices struct {
	// Programmed counts those that the data plane has as desired, Failed those that it refused.
	Total, Programmed, Failed int
	// Panic counts those whose health is ignored, Drained those that an operator has drained.
	Panic, Drained int
}

// ReportedBackends counts backends, one of two services twice.
type ReportedBackends struct{ Total, InUse, Unhealthy, Drained int }

// ReportedProblem is an object, or a service by its name, that isn't served as it is written.
type ReportedProblem struct{ Object, Text string }

// UnhealthyBackend is a backend that health checks found dead.
type UnhealthyBackend struct {
	// Service is the name of its service.
	Service string
	Backend lb.BackendID
	// Reason is how the last check failed, Since when the backend was found dead.
	Reason string
	Since  time.Time
}

// ReportedPeer is a peer with the state of its session.
type ReportedPeer struct {
	Address     netip.Addr
	Established bool
	// Reason is why there is no session, Since when it was established or ended.
	Reason string
	Since  time.Time
}

// Statistics are counters of a node.
type Statistics struct {
	// Read is when they were read.
	Read time.Time
	// Listeners are all listeners of LoadBalancers, sorted by service.
	Listeners []ListenerStatistics
}

// ListenerStatistics counts what the node has forwarded for a listener since its tables have had
// it.
type ListenerStatistics struct {
	// Service is the name of the listener's service.
	Service string
	// Packets are those from clients, Bytes those of their frames as received.
	Packets, Bytes uint64
	// NewFlows counts new flows, as dataplane.Traffic does.
	NewFlows uint64
}
