// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"net/netip"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
)

// Status is the agent as a whole.
type Status struct {
	// Role is RoleReflector of a route reflector, of which all counts but BGP are
	// zero; empty for an agent.
	Role    string    `json:"role,omitempty"`
	Version string    `json:"version"`
	Commit  string    `json:"commit"`
	Node    string    `json:"node"`
	PID     int       `json:"pid"`
	Kernel  string    `json:"kernel,omitempty"` // its release
	Started time.Time `json:"started"`
	// Listen is the address of the status page, the metrics and the API over HTTP;
	// empty without one.
	Listen string      `json:"listen,omitempty"`
	Config source.File `json:"config"`
	// Kubernetes is how the agent follows its cluster's API server, APIServer how it follows
	// "fairlead apiserver"; nil for an agent that doesn't.
	Kubernetes *source.State `json:"kubernetes,omitempty"`
	APIServer  *source.State `json:"apiServer,omitempty"`
	// FollowedBackends has the services of the file whose backends are followed.
	FollowedBackends []source.FollowedBackends `json:"followedBackends,omitempty"`
	Revision         uint64                    `json:"revision"` // of the desired services
	DataPlane        DataPlane                 `json:"dataplane"`
	// Draining is set while the node is being taken out of service, since
	// DrainingSince; packets that arrive are still balanced.
	Draining      bool      `json:"draining"`
	DrainingSince time.Time `json:"drainingSince,omitzero"`
	// Services and Backends count the services and their desired backends.
	Services v1alpha1.ServiceCounts `json:"services"`
	Backends v1alpha1.BackendCounts `json:"backends"`
	// BGP summarises Routes.
	BGP RouteSummary `json:"bgp"`
	// Exits are the ways that packets left the data plane, by name.
	Exits []Exit `json:"exits"`
}

// DataPlane is the data plane that forwards the packets.
type DataPlane struct {
	// Kind has the kinds of all data planes in use: "xdp, ipvs". Reason is why one that was
	// to be used isn't.
	Kind        string       `json:"kind"`
	Reason      string       `json:"reason,omitempty"`
	Attachments []Attachment `json:"attachments"`
	// FilterPods is set if packets for pods of this node pass its netfilter.
	FilterPods bool `json:"filterPods,omitempty"`
}

// Attachment is one interface on which packets are balanced.
type Attachment struct {
	Interface string `json:"interface"`
	// Mode is "native" or "generic", or without XDP "stack"; Reason is why it is generic.
	Mode   string `json:"mode"`
	Reason string `json:"reason,omitempty"`
	// Adopted is set if an earlier agent attached it.
	Adopted bool `json:"adopted"`
}

// Exit is a counter of packets.
type Exit struct {
	Name             string  `json:"name"`
	Packets          uint64  `json:"packets"`
	PacketsPerSecond float64 `json:"packetsPerSecond"`
}

// Rate is how fast a dataplane.Traffic grew in the last full second.
type Rate struct {
	PacketsPerSecond  float64 `json:"packetsPerSecond"`
	BytesPerSecond    float64 `json:"bytesPerSecond"`
	NewFlowsPerSecond float64 `json:"newFlowsPerSecond"`
}

func (r *Rate) add(o Rate) {
	r.PacketsPerSecond += o.PacketsPerSecond
	r.BytesPerSecond += o.BytesPerSecond
	r.NewFlowsPerSecond += o.NewFlowsPerSecond
}

// Service is one service, desired and in the data plane.
type Service struct {
	Name string `json:"name"`
	lb.VIP
	// Forward and Affinity are missing while the service is deleted.
	Forward  lb.Forward  `json:"forward,omitzero"`
	Affinity lb.Affinity `json:"affinity"`
	// AffinityTimeout is how long clients are remembered, in nanoseconds; 0 if they
	// aren't.
	AffinityTimeout time.Duration `json:"affinityTimeout,omitzero"`
	// Programmed is set if the data plane has the desired revision. An older
	// ProgrammedRevision that is not 0 is balanced until then.
	Programmed         bool   `json:"programmed"`
	DesiredRevision    uint64 `json:"desiredRevision"`
	ProgrammedRevision uint64 `json:"programmedRevision"`
	Deleting           bool   `json:"deleting,omitempty"`
	// DataPlane is the kind of data plane that has the service, where there may be several;
	// DataPlaneReason is why it isn't the first choice.
	DataPlane       string `json:"dataplane,omitempty"`
	DataPlaneReason string `json:"dataplaneReason,omitempty"`
	// Error is why the last attempt failed, Attempts counts the failures in a row.
	Error    string `json:"error,omitempty"`
	Attempts int    `json:"attempts"`
	// Backends counts the desired ones. BackendsDrained have weight 0 and are
	// meant to be unused.
	Backends      int `json:"backends"`
	BackendsInUse int `json:"backendsInUse"`
	// BackendsHealthy counts backends that are healthy, or count as healthy before the
	// first verdict; without a check these are all. Panic is set if so few are healthy that health is ignored.
	BackendsHealthy int  `json:"backendsHealthy"`
	Panic           bool `json:"panic,omitempty"`
	// Drained is set if an operator has drained the service on this node.
	Drained         bool `json:"drained,omitempty"`
	BackendsDrained int  `json:"backendsDrained"`
	RingSize        int  `json:"ringSize"`
	// Tracking counts the service's recorded flows.
	Tracking dataplane.Tracking `json:"tracking"`
	dataplane.Traffic
	Rate
}

// HealthState is the result of health checks of a backend.
type HealthState string

// The states. Until there is a verdict, the service's check defines whether a backend
// counts as healthy.
const (
	HealthUnchecked HealthState = "unchecked"
	HealthChecking  HealthState = "checking"
	HealthHealthy   HealthState = "healthy"
	HealthUnhealthy HealthState = "unhealthy"
)

// Health is the state of a backend by its health check.
type Health struct {
	State HealthState `json:"state"`
	// Reason is how the last probe failed; empty if it did not.
	Reason string `json:"reason,omitempty"`
	// Since is when the state began; zero if it never changed.
	Since time.Time `json:"since,omitzero"`
	// Took is how long the last probe took.
	Took time.Duration `json:"took,omitzero"`
}

// Backend is one backend of one service.
type Backend struct {
	Service string     `json:"service"`
	VIP     lb.VIP     `json:"vip"`
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	Weight  int        `json:"weight"`
	InUse   bool       `json:"inUse"`
	Health  Health     `json:"health"`
	// Drained is set if an operator has drained the backend.
	Drained bool `json:"drained,omitempty"`
	// Reason is why the backend is not in use.
	Reason string `json:"reason,omitempty"`
	// NextHop describes where its packets are sent.
	NextHop     string `json:"nextHop,omitempty"`
	RingEntries int    `json:"ringEntries"`
	// Share is the part of new flows that the backend gets, 0 to 1.
	Share float64 `json:"share"`
	dataplane.Traffic
	Rate
}

// Followed returns how the agent follows an API server; nil if it doesn't.
func (s *Status) Followed() *source.State { return cmp.Or(s.Kubernetes, s.APIServer) }
