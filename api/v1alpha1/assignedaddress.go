// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AssignedAddress is an address that Services or LoadBalancers have, or that is retained for its
// former namespace. Its name is the address (AssignedAddressName), so that no address has two
// objects. Only the controller writes it, before it adds the address to a status.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=faddr
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Owners",type=string,JSONPath=`.spec.owners[*].name`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.owners[*].namespace`
// +kubebuilder:printcolumn:name="Retained for",type=string,JSONPath=`.spec.retained.namespace`
// +kubebuilder:printcolumn:name="Released",type=date,JSONPath=`.spec.retained.released`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AssignedAddress struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Spec AssignedAddressSpec `json:"spec"`
}

// AssignedAddressSpec says whose the address is.
type AssignedAddressSpec struct {
	// Address is the address.
	//
	// +required
	Address IPAddress `json:"address"`
	// Segment is the virtual network of the address. The default is the untagged network.
	//
	// +optional
	Segment *Segment `json:"segment,omitempty"`
	// Owners are the objects whose statuses may have the address.
	//
	// +optional
	// +listType=atomic
	Owners []AddressOwner `json:"owners,omitempty"`
	// Retained says whose the address was. It is set while there are no owners.
	//
	// +optional
	Retained *RetainedAddress `json:"retained,omitempty"`
}

// AddressOwner is an object whose status may have an address.
type AddressOwner struct {
	// Kind is Service or LoadBalancer.
	//
	// +required
	// +kubebuilder:validation:Enum=Service;LoadBalancer
	Kind string `json:"kind"`
	// Namespace is the object's namespace.
	//
	// +required
	Namespace string `json:"namespace"`
	// Name is the object's name.
	//
	// +required
	Name string `json:"name"`
	// ResourceVersion is the version of the object to whose status the address may be added.
	//
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Sharing has the conditions for other owners. By default there are no others.
	//
	// +optional
	Sharing *AddressSharing `json:"sharing,omitempty"`
}

// AddressSharing has the conditions under which an owner shares its address: with owners of its
// namespace, of equal key and mode, and without common ports.
type AddressSharing struct {
	// Key is the sharing key.
	//
	// +required
	Key string `json:"key"`
	// Mode is the externalTrafficPolicy of a Service.
	//
	// +optional
	Mode string `json:"mode,omitempty"`
	// Ports are the ports in use, such as "443/tcp".
	//
	// +optional
	// +listType=atomic
	Ports []string `json:"ports,omitempty"`
}

// RetainedAddress says for whom a released address is retained.
type RetainedAddress struct {
	// Namespace is the namespace whose objects get the address.
	//
	// +required
	Namespace string `json:"namespace"`
	// Kind is the kind of the former owner, which gets the address first.
	//
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name is the former owner's name.
	//
	// +optional
	Name string `json:"name,omitempty"`
	// Released is when the address was released.
	//
	// +required
	Released metav1.Time `json:"released"`
}

// AssignedAddressList is a list of addresses.
//
// +kubebuilder:object:root=true
type AssignedAddressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AssignedAddress `json:"items"`
}

// AssignedAddressName returns the name of an address's object: for example "192.0.2.1",
// "2001-0db8-0000-0000-0000-0000-0000-0001", and "10.0.0.1.vlan-7" in a virtual network.
func AssignedAddressName(address netip.Addr, segment *Segment) string {
	name := strings.ReplaceAll(address.StringExpanded(), ":", "-")
	if segment != nil {
		name += fmt.Sprintf(".%s-%d", segment.Type, segment.ID)
	}
	return name
}
