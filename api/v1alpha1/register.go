// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of all kinds.
const Group = "fairlead.io"

// GroupVersion returns the group and version of all kinds in this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: "v1alpha1"}
}

// AddToScheme makes the kinds known to a scheme. It returns no error.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(),
		&AddressPool{}, &AddressPoolList{},
		&AssignedAddress{}, &AssignedAddressList{},
		&BalancerNode{}, &BalancerNodeList{},
		&BalancerNodeStatistics{}, &BalancerNodeStatisticsList{},
		&BGPPeer{}, &BGPPeerList{},
		&LoadBalancer{}, &LoadBalancerList{},
		&LoadBalancerGroup{}, &LoadBalancerGroupList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
