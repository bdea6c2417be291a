// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressPool is a set of addresses that the controller may give to Services.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=fairlead
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name="Auto",type=boolean,JSONPath=`.spec.autoAssign`
// +kubebuilder:printcolumn:name="Assigned",type=integer,JSONPath=`.status.assigned`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AddressPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Spec AddressPoolSpec `json:"spec"`
	// +optional
	Status AddressPoolStatus `json:"status,omitzero"`
}

// AddressPoolSpec says which addresses are given to whom.
type AddressPoolSpec struct {
	// Addresses are CIDRs such as "192.0.2.0/24" and ranges such as
	// "2001:db8::10-2001:db8::1f", of one family or both. All addresses of them are
	// given. Pools may overlap: an address has one owner all the same.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Addresses []AddressRange `json:"addresses"`
	// AutoAssign gives addresses to Services that name neither a pool nor an
	// address. The default is true.
	//
	// +optional
	// +kubebuilder:default=true
	AutoAssign *bool `json:"autoAssign,omitempty"`
	// Priority orders the pools that a Service may have an address from: the
	// greatest first, and equal ones by name. The default is 0.
	//
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// NamespaceSelector picks the namespaces whose Services may have addresses by
	// their labels; all, if it is not given.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ServiceSelector picks the Services and LoadBalancers that may have addresses
	// by their labels; all, if it is not given.
	//
	// +optional
	ServiceSelector *metav1.LabelSelector `json:"serviceSelector,omitempty"`
	// Announce is how BGP announces the addresses; host routes without attributes,
	// if it is not given.
	//
	// +optional
	Announce *Announcement `json:"announce,omitempty"`
}

// AddressRange is a CIDR or a range with a hyphen between its ends.
//
// +kubebuilder:validation:MaxLength=83
// +kubebuilder:validation:XValidation:rule="self.contains('-') || (isCIDR(self) && cidr(self) == cidr(self).masked())",message="want a CIDR without bits behind its length, or a range such as 192.0.2.10-192.0.2.20"
// +kubebuilder:validation:XValidation:rule="!self.contains('-') || (self.split('-').size() == 2 && self.split('-').all(a, isIP(a)) && ip(self.split('-')[0]).family() == ip(self.split('-')[1]).family())",message="a range needs two addresses of one family"
type AddressRange string

// Announcement is how BGP announces addresses.
type Announcement struct {
	// Aggregate announces the pool's CIDRs themselves while any address in them is
	// served, instead of a host route for each address. Ranges stay host routes.
	//
	// +optional
	Aggregate bool `json:"aggregate,omitempty"`
	// Communities are standard ("65000:100", RFC 1997) and large ("65000:1:2", RFC
	// 8092) communities.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Communities []Community `json:"communities,omitempty"`
	// LocalPreference is told to iBGP peers.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LocalPreference *int64 `json:"localPreference,omitempty"`
	// MED is the multi-exit discriminator.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MED *int64 `json:"med,omitempty"`
	// Prepend is how many times more the own ASN stands in the path that eBGP peers
	// see.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	Prepend int32 `json:"prepend,omitempty"`
}

// Community is a standard or a large BGP community.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^[0-9]{1,10}:[0-9]{1,10}(:[0-9]{1,10})?$`
type Community string

// AddressPoolStatus is how much of the pool is given away.
type AddressPoolStatus struct {
	// Assigned is the number of addresses that have an owner.
	//
	// +optional
	Assigned int64 `json:"assigned"`
	// Available is the number of addresses that have none; at most 2^53.
	//
	// +optional
	Available int64 `json:"available"`
	// Conditions: Ready.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AddressPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type AddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AddressPool `json:"items"`
}
