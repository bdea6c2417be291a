// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HealthCheck defines probes of backends.
//
// +kubebuilder:validation:XValidation:rule="!has(self.path) || self.type in ['http', 'https']",message="only http and https checks have a path",fieldPath=".path"
// +kubebuilder:validation:XValidation:rule="!has(self.host) || self.type in ['http', 'https']",message="only http and https checks have a host",fieldPath=".host"
// +kubebuilder:validation:XValidation:rule="!has(self.expectedCodes) || self.type in ['http', 'https']",message="only http and https checks have codes",fieldPath=".expectedCodes"
// +kubebuilder:validation:XValidation:rule="!has(self.port) || self.type != 'icmp'",message="icmp checks have no port",fieldPath=".port"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || duration(self.timeout) <= duration(has(self.interval) ? self.interval : '2s')",message="longer than the interval",fieldPath=".timeout"
type HealthCheck struct {
	// Type is the protocol.
	//
	// +required
	// +kubebuilder:validation:Enum=tcp;http;https;grpc;icmp
	Type string `json:"type"`
	// Port is the port to probe. The default is the port of each backend.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Path is the path of http and https requests. The default is "/".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^\x00-\x20\x7f]*$`
	Path string `json:"path,omitempty"`
	// Host is the host name of http and https requests, which https also sends in the TLS
	// handshake. The default is the address of the backend.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Host string `json:"host,omitempty"`
	// ExpectedCodes are the status codes of healthy responses to http and https requests:
	// codes and ranges, such as "200-299,404". The default is 200-399.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.split(',').all(r, !r.contains('-') || r.split('-')[0] <= r.split('-')[1])",message="want ranges with the lower code first"
	// +kubebuilder:validation:Pattern=`^[1-5][0-9]{2}(-[1-5][0-9]{2})?(,[1-5][0-9]{2}(-[1-5][0-9]{2})?)*$`
	ExpectedCodes string `json:"expectedCodes,omitempty"`
	// Interval is the time between two probes of a backend. The default is 2s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('1h')",message="want 10ms to 1h"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Timeout is the limit of a probe, at most the interval. The default is 1s, or the
	// interval if that is shorter.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('1h')",message="want more than 0s, up to 1h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Rise is the number of successful probes in a row that make a backend healthy. The
	// default is 2.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Rise int32 `json:"rise,omitempty"`
	// Fall is the number of failed probes in a row that make a backend unhealthy. The
	// default is 3.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Fall int32 `json:"fall,omitempty"`
}
