// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LoadBalancerGroup is some nodes that serve the same addresses together (the LBN
// group of the Kakao paper, section IV.C). The controller fills it with labelled
// nodes: a node is in one group at most. Several groups with the same selectors
// share the nodes, and the Services, fairly.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=fairlead,shortName=lbg
// +kubebuilder:printcolumn:name="Size",type=integer,JSONPath=`.spec.size`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyNodes`
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

// LoadBalancerGroupSpec says which nodes serve which Services.
type LoadBalancerGroupSpec struct {
	// Size is the number of nodes in the group. Labelled nodes beyond it are spare,
	// and take the place of nodes that are gone. The default is 3.
	//
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Size int32 `json:"size,omitempty"`
	// NodeSelector picks the nodes that may join, by their labels; all, if it is
	// empty ({}).
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="want the operators In and NotIn with values, Exists and DoesNotExist without"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	// Services says which Services and LoadBalancers the group may serve; all, if it
	// is not given.
	//
	// +optional
	Services ServiceFilter `json:"services,omitzero"`
	// DataPlane is how the group serves them, where they don't say it themselves.
	//
	// +optional
	// +kubebuilder:default={}
	DataPlane DataPlane `json:"dataPlane,omitzero"`
}

// ServiceFilter picks Services; those that pass all of its parts.
type ServiceFilter struct {
	// Selector picks by labels; all, if it is not given.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="want the operators In and NotIn with values, Exists and DoesNotExist without"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// NamespaceSelector picks by the labels of the namespace; all, if it is not given.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="want the operators In and NotIn with values, Exists and DoesNotExist without"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Classes picks by spec.loadBalancerClass: the classes beside "fairlead.io/lb"
	// that are the group's. Services of a class that a group names are served by such
	// groups only; those without a class, or of "fairlead.io/lb", by groups that name
	// none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=75
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^fairlead[.]io/[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$') && self != 'fairlead.io/lb'",message="want a class such as fairlead.io/internal; fairlead.io/lb is every group's that names none"
	Classes []string `json:"classes,omitempty"`
}

// DataPlane has the group's defaults.
type DataPlane struct {
	// Forward is how packets are brought to endpoints: to pods by dnat, with which
	// connections go on when a balancer is lost, or nat, for which nodes that have pods
	// need no agent; by the others to nodes, whose kube-proxy takes them. The default
	// is dnat.
	//
	// +optional
	// +kubebuilder:validation:Enum=nat;dnat;l2dsr;ipip;gue
	// +kubebuilder:default=dnat
	Forward string `json:"forward,omitempty"`
	// HealthCheck probes endpoints beside what their readiness says, by which nodes
	// that die are found long before Kubernetes notices; none, if it is not given.
	//
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
}

// LoadBalancerGroupStatus is what the group is made of.
type LoadBalancerGroupStatus struct {
	// Nodes are the group's, sorted by name.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []GroupNode `json:"nodes,omitempty"`
	// ReadyNodes is how many of them are ready.
	//
	// +optional
	ReadyNodes int32 `json:"readyNodes"`
	// Services is how many Services and LoadBalancers the group serves.
	//
	// +optional
	Services int32 `json:"services"`
	// Addresses is how many addresses it serves.
	//
	// +optional
	Addresses int32 `json:"addresses"`
	// Conditions: Ready.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GroupNode is a node of a group.
type GroupNode struct {
	// Name is the Node's.
	//
	// +required
	Name string `json:"name"`
	// Ready says that the node and the agent on it are.
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
