// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressPool is a set of addresses that the controller may assign to Services.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=fairlead,shortName=fpool
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

// AddressPoolSpec defines the addresses and the Services that may get them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.external) || !self.external || has(self.namespaceSelector)",message="an external pool needs one",fieldPath=".namespaceSelector"
type AddressPoolSpec struct {
	// Addresses are CIDRs such as "192.0.2.0/24" and ranges such as
	// "2001:db8::10-2001:db8::1f", of one family or both. All addresses are assigned,
	// including the first and the last one, unless skipZeroAnd255 is set. Pools may
	// overlap; an address still has one owner.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Addresses []AddressRange `json:"addresses"`
	// SkipZeroAnd255 keeps IPv4 addresses that end in .0 or .255 out of the pool: some
	// devices take them for addresses of a network. A Service that has one gets another
	// address. The default is false.
	//
	// +optional
	SkipZeroAnd255 bool `json:"skipZeroAnd255,omitempty"`
	// External says that another system assigns the addresses, such as OpenStack's Neutron:
	// Services and LoadBalancers have one only as long as they request that address. It needs
	// namespaceSelector. The default is false.
	//
	// +optional
	External bool `json:"external,omitempty"`
	// AutoAssign allows Services that name neither a pool nor an address to get
	// addresses from this pool. The default is true.
	//
	// +optional
	// +kubebuilder:default=true
	AutoAssign *bool `json:"autoAssign,omitempty"`
	// Priority orders eligible pools: the greatest first, equal ones by name. The
	// default is 0.
	//
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// NamespaceSelector selects namespaces by label; Services of other namespaces get
	// no address. The default is all namespaces.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="want the operators In and NotIn with values, Exists and DoesNotExist without"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ServiceSelector selects Services and LoadBalancers by label. The default is all.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="want the operators In and NotIn with values, Exists and DoesNotExist without"
	ServiceSelector *metav1.LabelSelector `json:"serviceSelector,omitempty"`
	// RetainFor is how long a released address is retained for its former namespace, whose
	// objects get it at once: clients may still know it. 0s retains none. The default is 1h, or
	// 0s in an external pool.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="want 0s to 720h"
	RetainFor *metav1.Duration `json:"retainFor,omitempty"`
	// Announce has the BGP attributes of the addresses. The default is host routes
	// without attributes.
	//
	// +optional
	Announce *Announcement `json:"announce,omitempty"`
}

// AddressRange is a CIDR, or a range with a hyphen between its first and its last
// address, in canonical form (RFC 5952). It contains no loopback, multicast,
// unspecified, broadcast or IPv4-mapped address. The ends of a range are in one /8 of
// IPv4 or one /64 of IPv6. Their order is checked by the controller, not by the schema.
//
// +kubebuilder:validation:MaxLength=79
// +kubebuilder:validation:XValidation:rule="self.contains('-') || isCIDR(self) && string(cidr(self).masked()) == self && ['0.0.0.0/32', '127.0.0.0/8', '224.0.0.0/4', '255.255.255.255/32', '::/127', '::fffe:0:0/95', 'ff00::/8'].all(c, !cidr(self).containsCIDR(c) && !cidr(c).containsCIDR(self))",message="want a CIDR of unicast addresses in canonical form, without host bits, such as 192.0.2.0/24 or 2001:db8::/64, or a range"
// +kubebuilder:validation:XValidation:rule="!self.contains('-') || self.split('-').size() == 2 && self.split('-').all(a, isIP(a) && ip.isCanonical(a) && (ip(a).isGlobalUnicast() || ip(a).isLinkLocalUnicast())) && cidr(self.find('^[^-]*') + (self.contains(':') ? '/64' : '/8')).containsIP(self.find('[^-]*$'))",message="want a range of unicast addresses in canonical form, within one /8 of IPv4 or one /64 of IPv6, such as 192.0.2.10-192.0.2.20"
type AddressRange string

// Announcement has the BGP attributes of addresses.
type Announcement struct {
	// Aggregate announces the CIDRs of the pool while any of their addresses is served,
	// in place of host routes. Ranges stay host routes, and so do CIDRs while several groups
	// serve addresses in them: a node drops packets for those that it doesn't serve. The
	// default is false.
	//
	// +optional
	Aggregate bool `json:"aggregate,omitempty"`
	// Prepend is the number of extra repetitions of the own ASN in the path for eBGP
	// peers. The default is 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	Prepend int32 `json:"prepend,omitempty" range:"0-16"`

	RouteAttributes `json:",inline"`
}

// RouteAttributes are attributes of routes, which the clients of a route reflector may be
// allowed to set, too.
type RouteAttributes struct {
	// Communities are standard ("65000:100", RFC 1997) and large ("65000:1:2", RFC
	// 8092) communities.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Communities []Community `json:"communities,omitempty"`
	// LocalPreference is sent to iBGP peers. By default there is no attribute.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LocalPreference *int64 `json:"localPreference,omitempty" range:"0-4294967295"`
	// MED is the multi-exit discriminator. By default there is no attribute.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MED *int64 `json:"med,omitempty" range:"0-4294967295"`
}

// Community is a standard or a large BGP community: two numbers of 16 bits, or three of
// 32. GRACEFUL_SHUTDOWN (65535:0, RFC 8326) is not allowed: routes have it while their
// node drains.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[1-9][0-9]{0,9})(:(0|[1-9][0-9]{0,9})){1,2}$') && self.split(':').all(n, int(n) <= (self.split(':').size() == 2 ? 65535 : 4294967295)) && self != '65535:0'",message="want two numbers up to 65535, such as 65000:100, or three up to 4294967295, and not 65535:0"
type Community string

// AddressPoolStatus is the usage of the pool.
type AddressPoolStatus struct {
	// Assigned is the number of addresses that have an owner.
	//
	// +optional
	Assigned int64 `json:"assigned"`
	// Available is the number of addresses without an owner, at most 2^53, with the
	// retained ones.
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
