// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HealthCheck is how backends are probed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.path) || self.type in ['http', 'https']",message="only http and https checks have a path"
// +kubebuilder:validation:XValidation:rule="!has(self.port) || self.type != 'icmp'",message="icmp checks have no port"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || !has(self.interval) || duration(self.timeout) <= duration(self.interval)",message="the timeout is longer than the interval"
type HealthCheck struct {
	// Type is the protocol.
	//
	// +required
	// +kubebuilder:validation:Enum=tcp;http;https;grpc;icmp
	Type string `json:"type"`
	// Port is where backends are probed; each one's own port, if it is not given.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Path is what http and https checks ask for; "/", if it is not given.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^\s]*$`
	Path string `json:"path,omitempty"`
	// Interval is the time between two probes of one backend; 2s, if it is not
	// given. Timeout is how long one may take; 1s, or the interval if that is shorter.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('1h')",message="want 10ms to 1h"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('1h')",message="want more than 0s, up to 1h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Rise and Fall are how many probes in a row make a backend healthy or
	// unhealthy; 2 and 3, if they are not given.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Rise int32 `json:"rise,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Fall int32 `json:"fall,omitempty"`
}
