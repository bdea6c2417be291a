// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// NamespaceQuota limits the usage of a group's nodes by the Services and LoadBalancers of one
// namespace. If they use more, the oldest ones that fit are served.
type NamespaceQuota struct {
	// Services is the maximum number of addresses and ports. The default is 1024.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Services int32 `json:"services,omitempty"`
	// Backends is the maximum number of endpoints and members of all addresses and ports.
	// The default is 32768.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	Backends int32 `json:"backends,omitempty"`
	// SourcePrefixes is the maximum number of source ranges of all addresses and ports. The
	// default is 32768.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=131072
	SourcePrefixes int32 `json:"sourcePrefixes,omitempty"`
	// Probes is the maximum number of endpoints and members, of all addresses and ports, that
	// health checks probe. The default is 8192.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	Probes int32 `json:"probes,omitempty"`
}
