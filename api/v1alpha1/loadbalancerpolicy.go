// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// LoadBalancerPolicy limits the networks of nodes that authors of LoadBalancers may use. A
// LoadBalancer without segments, with members in memberNetworks alone, needs no other field.
type LoadBalancerPolicy struct {
	// MemberNetworks are the CIDRs of members. By default there are none, so no member is
	// served.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	MemberNetworks []CIDR `json:"memberNetworks,omitempty"`
	// ClusterNetworks are networks of the cluster itself that members and tunnel end points
	// within the other fields' CIDRs may be in as well: "Node" (addresses of nodes), "Pod"
	// (CIDRs in the specifications of nodes), "Service" (cluster IPs) and "LinkLocal". By
	// default there are none. Addresses of AddressPools are never allowed.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=Node;Pod;Service;LinkLocal
	ClusterNetworks []string `json:"clusterNetworks,omitempty"`
	// MemberMACs allows members with a MAC address, to which frames are sent without a
	// neighbour table. The default is false. Behind tunnels it isn't needed: there the MAC
	// address is within the segment.
	//
	// +optional
	MemberMACs bool `json:"memberMACs,omitempty"`
	// Segments are the virtual networks of addresses and members. By default there are none.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Segments []SegmentRange `json:"segments,omitempty"`
	// TunnelEnds are the CIDRs of tunnel end points in front of members. By default there are
	// none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	TunnelEnds []CIDR `json:"tunnelEnds,omitempty"`
}

// CIDR is a network in canonical form, without host bits.
//
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self) && string(cidr(self).masked()) == self",message="want a CIDR in canonical form without host bits, such as 192.0.2.0/24"
type CIDR string

// SegmentRange is one virtual network, or several with consecutive numbers.
//
// +kubebuilder:validation:XValidation:rule="!has(self.last) || self.first <= self.last",message="want one that is not less than first",fieldPath=".last"
// +kubebuilder:validation:XValidation:rule="!has(self.announce) || self.type == 'vlan'",message="only addresses in a vlan are announced",fieldPath=".announce"
type SegmentRange struct {
	// Type is the type of the networks.
	//
	// +required
	// +kubebuilder:validation:Enum=vlan;vxlan;geneve
	Type string `json:"type"`
	// First is the number of the first network.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	First int64 `json:"first"`
	// Last is the number of the last network. The default is the first one.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	Last int64 `json:"last,omitempty"`
	// Announce are the CIDRs whose addresses in these VLANs, of LoadBalancers of any group, are
	// announced as host routes by nodes with a next hop there: the annotation fairlead.io/next-hops
	// of a Node has its addresses in VLANs. By default none are.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Announce []CIDR `json:"announce,omitempty"`
}
