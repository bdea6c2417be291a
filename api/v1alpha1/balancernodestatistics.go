// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BalancerNodeStatistics has the counters that the agent of a node reports: the packets, bytes
// and flows of each listener of a LoadBalancer. It has the name of the Node and is deleted with
// it. Only the agent of that node writes it, when counters have changed and at most once a
// minute, so that BalancerNode, which is written soon after each change, stays small.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead,path=balancernodestatistics,shortName=fstats
// +kubebuilder:printcolumn:name="Omitted",type=integer,JSONPath=`.status.omittedListeners`
// +kubebuilder:printcolumn:name="Reported",type=date,JSONPath=`.status.reported`
type BalancerNodeStatistics struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Status BalancerNodeStatisticsStatus `json:"status"`
}

// BalancerNodeStatisticsStatus are the counters of a node. Its listeners take 900 kB of JSON at
// most, enough for 4,096 listeners with names like OpenStack's.
type BalancerNodeStatisticsStatus struct {
	// Reported is when the agent read the counters.
	//
	// +required
	Reported metav1.Time `json:"reported"`
	// Listeners are those that the node serves, sorted by service.
	//
	// +optional
	// +listType=atomic
	Listeners []ListenerStatistics `json:"listeners,omitempty"`
	// OmittedListeners counts the listeners that aren't listed, as there are too many.
	//
	// +optional
	OmittedListeners int32 `json:"omittedListeners,omitempty"`
}

// ListenerStatistics are the counters of a listener on a node, since its tables have had the
// listener: they survive restarts of the agent, but not of the machine. They count only packets
// from clients: in most forwarding modes responses bypass the node.
type ListenerStatistics struct {
	// Service is the name of the listener's service, such as "flb:default/shop/https": namespace,
	// LoadBalancer and listener.
	//
	// +required
	// +kubebuilder:validation:MaxLength=400
	Service string `json:"service"`
	// Packets counts the packets that were sent to members.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Packets int64 `json:"packets"`
	// Bytes counts the bytes of their frames, as received.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Bytes int64 `json:"bytes"`
	// NewFlows counts new flows: each SYN of TCP, each newly recorded flow of UDP, with nat each
	// session.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	NewFlows int64 `json:"newFlows"`
}

// BalancerNodeStatisticsList is a list of counters of nodes.
//
// +kubebuilder:object:root=true
type BalancerNodeStatisticsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []BalancerNodeStatistics `json:"items"`
}
