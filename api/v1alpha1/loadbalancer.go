// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LoadBalancer is a virtual address for machines outside the cluster: virtual
// machines and bare metal. Its words are those of OpenStack's Octavia, which
// writes such objects: listeners lead to pools, which have members.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=fairlead,shortName=flb
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.status.group`
// +kubebuilder:printcolumn:name="Forward",type=string,JSONPath=`.spec.forward`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LoadBalancer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Spec LoadBalancerSpec `json:"spec"`
	// +optional
	Status LoadBalancerStatus `json:"status,omitzero"`
}

// LoadBalancerSpec is what is to be balanced.
//
// +kubebuilder:validation:XValidation:rule="self.listeners.all(l, self.pools.exists(p, p.name == l.pool))",message="a listener's pool is missing in pools"
// +kubebuilder:validation:XValidation:rule="!has(self.segment) || has(self.address)",message="an address in a segment has to be given"
// +kubebuilder:validation:XValidation:rule="self.forward != 'vxlan' && self.forward != 'geneve' || self.pools.all(p, !has(p.members) || p.members.all(m, has(m.tunnelEnd) && has(m.mac)))",message="members behind vxlan and geneve need tunnelEnd and mac"
type LoadBalancerSpec struct {
	// Address is the virtual address; one from an AddressPool, if it is not given.
	// One that is given needs to be in a pool too, unless it is in a segment.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="want an address in its canonical form"
	Address string `json:"address,omitempty"`
	// AddressPool names the pool from which the address comes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AddressPool string `json:"addressPool,omitempty"`
	// IPFamily is that of an address that is not given.
	//
	// +optional
	// +kubebuilder:validation:Enum=IPv4;IPv6
	// +kubebuilder:default=IPv4
	IPFamily string `json:"ipFamily,omitempty"`
	// Segment is the virtual network of the address; the untagged one, if it is not
	// given. Every other one has addresses of its own, of which no pool knows.
	//
	// +optional
	Segment *Segment `json:"segment,omitempty"`
	// Forward is how packets are brought to members.
	//
	// +required
	// +kubebuilder:validation:Enum=l2dsr;ipip;gue;vxlan;geneve;nat
	Forward string `json:"forward"`
	// Listeners have distinct names, and distinct pairs of port and protocol.
	//
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.port == b.port && a.protocol == b.protocol))",message="two listeners have the same port and protocol"
	Listeners []Listener `json:"listeners"`
	// Pools have distinct names.
	//
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Pools []Pool `json:"pools"`
}

// Segment is a virtual network.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'vlan' || self.id <= 4094",message="a VLAN id is 1 to 4094"
type Segment struct {
	// +required
	// +kubebuilder:validation:Enum=vlan;vxlan;geneve
	Type string `json:"type"`
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	ID int64 `json:"id"`
}

// Listener is a port of the address.
type Listener struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// +optional
	// +kubebuilder:validation:Enum=TCP;UDP
	// +kubebuilder:default=TCP
	Protocol string `json:"protocol,omitempty"`
	// Pool names one of spec.pools.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Pool string `json:"pool"`
	// SourceRanges are the clients that may use the listener; all, if there are none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="want a CIDR without bits behind its length"
	SourceRanges []string `json:"sourceRanges,omitempty"`
	// Enabled: a listener that isn't serves nobody.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
}

// Pool is members that serve the same.
type Pool struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// SessionAffinity "ClientIP" keeps all flows of one client together.
	//
	// +optional
	// +kubebuilder:validation:Enum=None;ClientIP
	// +kubebuilder:default=None
	SessionAffinity string `json:"sessionAffinity,omitempty"`
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Members have distinct pairs of address and port.
	//
	// +optional
	// +listType=map
	// +listMapKey=address
	// +listMapKey=port
	// +kubebuilder:validation:MaxItems=256
	Members []Member `json:"members,omitempty"`
}

// Member is a machine that serves.
type Member struct {
	// +required
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="want an address in its canonical form"
	Address string `json:"address"`
	// Port equals the listener's, but with nat.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Weight is the member's share relative to the others'; 0 gets no new flows.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=256
	Weight *int32 `json:"weight,omitempty"`
	// MAC overrides what the neighbour table says; with vxlan and geneve it is the
	// member's own.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$`
	MAC string `json:"mac,omitempty"`
	// Segment overrides the virtual network in which the member is.
	//
	// +optional
	Segment *Segment `json:"segment,omitempty"`
	// TunnelEnd is the tunnel end point behind which the member is; with vxlan and
	// geneve only.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="want an address in its canonical form"
	TunnelEnd string `json:"tunnelEnd,omitempty"`
}

// LoadBalancerStatus is what became of it.
type LoadBalancerStatus struct {
	// Address is the virtual address that it has.
	//
	// +optional
	Address string `json:"address,omitempty"`
	// Group is the LoadBalancerGroup that serves it.
	//
	// +optional
	Group string `json:"group,omitempty"`
	// Conditions: Allocated and Ready.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Listeners has one for each of the spec's.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Listeners []PartStatus `json:"listeners,omitempty"`
	// Pools has one for each of the spec's.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Pools []PoolStatus `json:"pools,omitempty"`
}

// PartStatus is whether a part is sound.
type PartStatus struct {
	// +required
	Name string `json:"name"`
	// Accepted says that the part can be served.
	//
	// +optional
	Accepted bool `json:"accepted"`
	// Message says why not.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// PoolStatus is a pool's.
type PoolStatus struct {
	PartStatus `json:",inline"`
	// Members has those that can't be served, by address and port, and why.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Members []PartStatus `json:"members,omitempty"`
}

// LoadBalancerList is a list of load balancers.
//
// +kubebuilder:object:root=true
type LoadBalancerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []LoadBalancer `json:"items"`
}
