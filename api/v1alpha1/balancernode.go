// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BalancerNode is the report of a node's agent: counts of services, backends and routes,
// services that it can't serve, unhealthy backends, and sessions with routers. It has the name
// of the Node and is deleted with it. Only the agent of the node writes it: after changes, at a
// limited rate, and at least once a minute.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead,shortName=fnode
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=`.status.services.total`
// +kubebuilder:printcolumn:name="Programmed",type=integer,JSONPath=`.status.services.programmed`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.services.failed`
// +kubebuilder:printcolumn:name="Unhealthy",type=integer,JSONPath=`.status.backends.unhealthy`
// +kubebuilder:printcolumn:name="Sessions",type=integer,JSONPath=`.status.routes.sessions`
// +kubebuilder:printcolumn:name="Routes",type=integer,JSONPath=`.status.routes.announced`
// +kubebuilder:printcolumn:name="Packets/s",type=integer,JSONPath=`.status.traffic.packetsPerSecond`
// +kubebuilder:printcolumn:name="Draining",type=boolean,JSONPath=`.status.draining`
// +kubebuilder:printcolumn:name="Version",type=string,priority=1,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Started",type=date,JSONPath=`.status.started`
type BalancerNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Status BalancerNodeStatus `json:"status"`
}

// BalancerNodeStatus is the report of a node. Its lists contain only problems, so that it is small
// for any number of services. Namespaces share the places of a list: it has all entries of those that
// have at least two fewer than another one.
type BalancerNodeStatus struct {
	// Version is the agent's version.
	//
	// +required
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version"`
	// Started is when the agent started.
	//
	// +required
	Started metav1.Time `json:"started"`
	// Reported is when the agent wrote this, at least once a minute.
	//
	// +optional
	Reported metav1.Time `json:"reported,omitzero"`
	// DataPlane has the kinds of all data planes in use, such as "xdp" or "xdp, ipvs".
	//
	// +required
	// +kubebuilder:validation:MaxLength=64
	DataPlane string `json:"dataPlane"`
	// Draining is true while the node is being taken out of service: an operator drains it, it
	// is cordoned, being deleted, or shutting down. Routers send nothing to it any more when
	// routes.announced is 0.
	//
	// +required
	Draining bool `json:"draining"`
	// Observed says which objects the report covers.
	//
	// +optional
	Observed ObservedVersions `json:"observed,omitzero"`
	// Services counts the ports of Services and the listeners of LoadBalancers that the node
	// serves, and those that it is about to stop serving.
	//
	// +required
	Services ServiceCounts `json:"services"`
	// Backends counts the backends of these services, one of two services twice.
	//
	// +required
	Backends BackendCounts `json:"backends"`
	// Routes counts the routes of the addresses, and the sessions with routers.
	//
	// +required
	Routes RouteCounts `json:"routes"`
	// Traffic is the rate at which the node forwarded in the last minute, or in the last
	// five seconds while it drains.
	//
	// +optional
	Traffic NodeTraffic `json:"traffic"`
	// Withheld are prefixes that are not announced. There are at most 100; routes.withheld
	// counts all.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Withheld []WithheldRoute `json:"withheld,omitempty"`
	// FailedServices are services that the data plane refused. There are at most 100;
	// services.failed counts all.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	FailedServices []NodeProblem `json:"failedServices,omitempty"`
	// Problems are objects that the agent doesn't serve as they are written, each with its first
	// problem. There are at most 100; OmittedProblems counts the others.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Problems []NodeProblem `json:"problems,omitempty"`
	// OmittedProblems counts the problems that aren't listed.
	//
	// +optional
	OmittedProblems int32 `json:"omittedProblems,omitempty"`
	// Unhealthy are the backends that health checks found dead. There are at most 100;
	// backends.unhealthy counts all.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Unhealthy []UnhealthyBackend `json:"unhealthy,omitempty"`
	// Peers are the routers to which the node announces its addresses, at most 100.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Peers []NodePeer `json:"peers,omitempty"`
	// Addresses are the addresses of the interfaces that the agent balances at, at most 256: no object
	// gets them. Without a cluster they are the addresses of all interfaces, and of BGP peers.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Addresses []IPAddress `json:"addresses,omitempty"`
}

// ObservedVersions are the newest resource versions that the node has programmed: each older
// Service and LoadBalancer for the node is programmed, or among the failed services or the problems.
type ObservedVersions struct {
	// Services is the newest version of a Service that Fairlead serves.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Services string `json:"services,omitempty"`
	// LoadBalancers is the newest version of a LoadBalancer.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LoadBalancers string `json:"loadBalancers,omitempty"`
	// BootID is status.nodeInfo.bootID of the Node, which changes when the machine starts again. An
	// agent writes no report before its data plane is attached.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
}

// NodeTraffic is the forwarding rate of a node, measured on received frames.
type NodeTraffic struct {
	// PacketsPerSecond is the average over that time.
	//
	// +required
	PacketsPerSecond int64 `json:"packetsPerSecond"`
	// BitsPerSecond is the average over that time.
	//
	// +required
	BitsPerSecond int64 `json:"bitsPerSecond"`
}

// WithheldRoute is a prefix that is not announced.
type WithheldRoute struct {
	// Prefix is an address with its full length, or an aggregate.
	//
	// +required
	// +kubebuilder:validation:MaxLength=64
	Prefix string `json:"prefix"`
	// Message says why.
	//
	// +required
	// +kubebuilder:validation:MaxLength=300
	Message string `json:"message"`
}

// ServiceCounts counts services. Those that are neither programmed nor failed have not been
// tried yet, or are being deleted.
type ServiceCounts struct {
	// Total is the number of services.
	//
	// +required
	Total int32 `json:"total"`
	// Programmed counts those that the data plane has as they are desired.
	//
	// +required
	Programmed int32 `json:"programmed"`
	// Failed counts those that could not be programmed.
	//
	// +required
	Failed int32 `json:"failed"`
	// Panic counts the services with so few healthy backends that health is ignored.
	//
	// +required
	Panic int32 `json:"panic"`
	// Drained counts those that an operator has drained on this node.
	//
	// +required
	Drained int32 `json:"drained"`
}

// BackendCounts counts backends.
type BackendCounts struct {
	// Total is the number of backends.
	//
	// +required
	Total int32 `json:"total"`
	// InUse counts those that get new flows.
	//
	// +required
	InUse int32 `json:"inUse"`
	// Unhealthy counts those that health checks found dead.
	//
	// +required
	Unhealthy int32 `json:"unhealthy"`
	// Drained counts those that an operator has drained on this node.
	//
	// +required
	Drained int32 `json:"drained"`
}

// RouteCounts counts routes and sessions.
type RouteCounts struct {
	// Announced counts the prefixes that are announced to routers.
	//
	// +required
	Announced int32 `json:"announced"`
	// Leaving counts those among them that carry GRACEFUL_SHUTDOWN (RFC 8326) and are about to be
	// withdrawn: routers prefer other routes.
	//
	// +optional
	Leaving int32 `json:"leaving,omitempty"`
	// Withheld counts the prefixes that are not announced, for example because no backend is
	// healthy.
	//
	// +required
	Withheld int32 `json:"withheld"`
	// Sessions counts the established BGP sessions.
	//
	// +required
	Sessions int32 `json:"sessions"`
}

// NodeProblem is an object that isn't served as it is written.
type NodeProblem struct {
	// Object is the object or service, such as "Service default/web" or "default/web/80".
	//
	// +required
	// +kubebuilder:validation:MaxLength=400
	Object string `json:"object"`
	// Message describes the problem.
	//
	// +required
	// +kubebuilder:validation:MaxLength=300
	Message string `json:"message"`
}

// String returns the object and the message.
func (p NodeProblem) String() string { return p.Object + ": " + p.Message }

// UnhealthyBackend is a backend that health checks found dead.
type UnhealthyBackend struct {
	// Service is the name of the service, such as "default/web/80".
	//
	// +required
	// +kubebuilder:validation:MaxLength=400
	Service string `json:"service"`
	// Backend is its address and port.
	//
	// +required
	// +kubebuilder:validation:MaxLength=64
	Backend string `json:"backend"`
	// Message is how the last check failed.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=300
	Message string `json:"message,omitempty"`
	// Since is when it was found dead.
	//
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// NodePeer is a session of the node with a router.
type NodePeer struct {
	// Name is the name of the BGPPeer.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Address is the router's.
	//
	// +required
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address"`
	// Established is true while there is a session.
	//
	// +required
	Established bool `json:"established"`
	// Message is why the session is not established.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=300
	Message string `json:"message,omitempty"`
	// Since is when the session was established or ended.
	//
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// BalancerNodeList is a list of reports.
//
// +kubebuilder:object:root=true
type BalancerNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []BalancerNode `json:"items"`
}
