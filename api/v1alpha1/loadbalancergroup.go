// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LoadBalancerGroup is a set of nodes that serve the same addresses together. The
// controller fills it with labelled nodes; a node is in at most one group. Groups with
// the same selectors share the nodes and the Services evenly.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=fairlead,shortName=lbg
// +kubebuilder:printcolumn:name="Size",type=integer,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyNodes`
// +kubebuilder:printcolumn:name="Programmed",type=string,JSONPath=`.status.conditions[?(@.type=='Programmed')].status`
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=`.status.services`
// +kubebuilder:printcolumn:name="Addresses",type=integer,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Nodes",type=string,priority=1,JSONPath=`.status.nodes`
type LoadBalancerGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Spec LoadBalancerGroupSpec `json:"spec"`
	// +optional
	Status LoadBalancerGroupStatus `json:"status,omitzero"`
}

// LoadBalancerGroupSpec defines the nodes and the Services of a group.
//
// +kubebuilder:validation:XValidation:rule="!has(self.autoscaling) || self.autoscaling.maxSize > self.size",message="want more than size",fieldPath=".autoscaling.maxSize"
type LoadBalancerGroupSpec struct {
	// Size is the number of nodes in the group. Labelled nodes beyond it are spare and
	// replace nodes that leave. The default is 3.
	//
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Size int32 `json:"size,omitempty"`
	// Autoscaling lets the group have more nodes than Size while its load needs them. By
	// default it has Size nodes.
	//
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`
	// NodeSelector selects the nodes that may join, by label; all nodes, if it is empty
	// ({}).
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="want the operators In and NotIn with values, Exists and DoesNotExist without"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	// Services selects the Services and LoadBalancers that the group may serve, and bounds
	// them. The default is all.
	//
	// +optional
	Services ServiceFilter `json:"services,omitzero"`
	// LoadBalancers has the networks that LoadBalancers of the group may use. By default
	// there are none.
	//
	// +optional
	LoadBalancers LoadBalancerPolicy `json:"loadBalancers,omitzero"`
	// DataPlane has a group's defaults.
	//
	// +optional
	// +kubebuilder:default={}
	DataPlane DataPlane `json:"dataPlane,omitzero"`
}

// Autoscaling decides the number of nodes by the load that they report. Spare nodes join the
// group at once if its nodes carry more than PerNode. One at a time leaves it after fewer nodes
// have been enough for ScaleDownAfter.
type Autoscaling struct {
	// MaxSize is the maximum number of nodes. The minimum is size.
	//
	// +required
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=64
	MaxSize int32 `json:"maxSize"`
	// PerNode is how much of the group's load one node should carry at most. Of several
	// loads the one that needs most nodes decides.
	//
	// +required
	PerNode NodeLoad `json:"perNode"`
	// ScaleDownAfter is how long one node fewer has to be enough, with a tenth of PerNode in
	// reserve, before a node leaves. The default is 10m.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5m') && duration(self) <= duration('24h')",message="want 5m to 24h"
	ScaleDownAfter *metav1.Duration `json:"scaleDownAfter,omitempty"`
}

// NodeLoad is a node's share of the load of a group. At least one field is set.
//
// +kubebuilder:validation:MinProperties=1
type NodeLoad struct {
	// Addresses is a number of addresses. Each node serves all addresses of the group, so this
	// is for load that is expected before it can be measured.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	Addresses int32 `json:"addresses,omitempty"`
	// BitsPerSecond is the average of a minute, of frames as received.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	BitsPerSecond int64 `json:"bitsPerSecond,omitempty"`
	// PacketsPerSecond is the average of a minute.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	PacketsPerSecond int64 `json:"packetsPerSecond,omitempty"`
}

// ServiceFilter selects Services that match all of its parts.
type ServiceFilter struct {
	// Selector selects Services by label. The default is all.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="want the operators In and NotIn with values, Exists and DoesNotExist without"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// NamespaceSelector selects namespaces by label. The default is all.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="want the operators In and NotIn with values, Exists and DoesNotExist without"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Classes are values of spec.loadBalancerClass other than "fairlead.io/lb".
	// Services of a class are served only by groups that list it; Services without a
	// class, or of "fairlead.io/lb", by groups without classes.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=75
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^fairlead[.]io/[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$') && self != 'fairlead.io/lb'",message="want a class such as fairlead.io/internal; fairlead.io/lb is every group's that names none"
	Classes []string `json:"classes,omitempty"`
	// MaxPorts is the maximum number of ports of a Service or LoadBalancer. One with more is not
	// served. The default is 256.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxPorts int32 `json:"maxPorts,omitempty"`
	// PerNamespace limits the usage of the group's nodes by one namespace.
	//
	// +optional
	PerNamespace NamespaceQuota `json:"perNamespace,omitzero"`
}

// DataPlane has the group's defaults.
type DataPlane struct {
	// Forward is the forwarding mode. "dsr" and "nat" send to pods: with dsr
	// connections survive the loss of a balancer, with nat nodes that have pods need no
	// agent. "l2dsr", "ipip" and "gue" send to nodes, whose kube-proxy takes over. The
	// default is dsr.
	//
	// +optional
	// +kubebuilder:validation:Enum=nat;dsr;l2dsr;ipip;gue
	// +kubebuilder:default=dsr
	Forward string `json:"forward,omitempty"`
	// HealthCheck probes endpoints in addition to their readiness, so dead nodes are
	// detected sooner than by Kubernetes. By default there is no check.
	//
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// MinHealthCheckInterval is the shortest time between two probes that Services and
	// LoadBalancers may choose. Shorter ones are raised to it. The default is 500ms.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('1h')",message="want 10ms to 1h"
	MinHealthCheckInterval *metav1.Duration `json:"minHealthCheckInterval,omitempty"`
	// FirewallMarkMask has the bits of packets' marks that no other program of the nodes uses. The
	// firewall marks of Services and LoadBalancers are names within their namespaces; nodes
	// use numbers within these bits for them. By default there are none, and objects with a
	// firewall mark are not served.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	FirewallMarkMask int64 `json:"firewallMarkMask,omitempty"`
	// IPVS lets Services and LoadBalancers have a scheduler other than "maglev", and a maximum of
	// connections, for which nodes with the data plane auto forward by IPVS. By default objects
	// with one are not served.
	//
	// +optional
	IPVS bool `json:"ipvs,omitempty"`
	// Limits are the limits of new flows of Services and listeners without limits of their
	// own. By default there is no limit.
	//
	// +optional
	Limits FlowLimits `json:"limits,omitzero"`
}

// FlowLimits limits the rate of new flows on each node. Existing flows are not limited.
type FlowLimits struct {
	// NewFlows is the maximum number of new flows per second of an address and port.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	NewFlows int32 `json:"newFlows,omitempty" range:"1-10000000"`
	// NewFlowsPerSource is the maximum number of new flows per second of one client, an
	// IPv4 address or an IPv6 /64.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	NewFlowsPerSource int32 `json:"newFlowsPerSource,omitempty" range:"1-10000000"`
}

// LoadBalancerGroupStatus has the nodes and the load of the group.
type LoadBalancerGroupStatus struct {
	// Size is the desired number of nodes: the spec's, or the number that autoscaling has
	// chosen.
	//
	// +optional
	Size int32 `json:"size"`
	// Nodes are the nodes of the group, sorted by name. A cordoned node is one of them until
	// others announce as many routes, in addition to the one that replaces it.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []GroupNode `json:"nodes,omitempty"`
	// NodesWithoutAgent are the nodes of the cluster from which no agent has reported yet, sorted by
	// name. Packets for their pods are translated in full with dsr, and are not sent there through
	// tunnels.
	//
	// +optional
	// +listType=set
	NodesWithoutAgent []string `json:"nodesWithoutAgent,omitempty"`
	// NodesRestarted are the nodes of the cluster that were started again, and from which no agent has
	// reported since, sorted by name. With dsr and tunnels their pods get no packets while others are
	// ready.
	//
	// +optional
	// +listType=set
	NodesRestarted []string `json:"nodesRestarted,omitempty"`
	// ReadyNodes is the number of ready nodes.
	//
	// +optional
	ReadyNodes int32 `json:"readyNodes"`
	// Services is the number of Services and LoadBalancers that the group serves.
	//
	// +optional
	Services int32 `json:"services"`
	// Addresses is the number of addresses that the group serves.
	//
	// +optional
	Addresses int32 `json:"addresses"`
	// Conditions: Ready, Programmed and Announced, and with autoscaling Scaled.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GroupNode is a node of a group.
type GroupNode struct {
	// Name is the name of the Node.
	//
	// +required
	Name string `json:"name"`
	// Ready is true if the node and its agent are ready.
	//
	// +optional
	Ready bool `json:"ready"`
}

// LoadBalancerGroupList is a list of groups.
//
// +kubebuilder:object:root=true
type LoadBalancerGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []LoadBalancerGroup `json:"items"`
}
