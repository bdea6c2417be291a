// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FileService is an entry of "services" of a node's configuration file: a listener and its
// pool in one. The tag "range" has the bounds of a number in files.
//
// +kubebuilder:object:generate=false
type FileService struct {
	// Name is unique in the file.
	Name string `json:"name"`
	// Address, Port and Protocol (tcp or udp, tcp by default) are the virtual address;
	// Segment is its virtual network, by default the untagged one.
	Address  IPAddress `json:"address"`
	Port     int32     `json:"port" range:"1-65535"`
	Protocol string    `json:"protocol,omitempty"`
	Segment  *Segment  `json:"segment,omitempty"`
	// Forward is the forwarding mode.
	Forward string `json:"forward"`
	// Affinity is flow (default), client or quic. AffinityTimeout is how long a client without
	// new flows is remembered, with client; by default it isn't.
	Affinity        string           `json:"affinity,omitempty"`
	AffinityTimeout *metav1.Duration `json:"affinityTimeout,omitempty"`
	// FirewallMark joins services of one node, as in a LoadBalancer.
	FirewallMark int64 `json:"firewallMark,omitempty" range:"1-4294967295"`
	// Tracking is minimal (default) or full. Learn is how long UDP flows are recorded before
	// backends change, 1s by default.
	Tracking string           `json:"tracking,omitempty"`
	Learn    *metav1.Duration `json:"learn,omitempty"`

	ListenerOptions `json:",inline"`
	PoolOptions     `json:",inline"`

	// Health is the health check; without one all backends count as healthy.
	Health *FileHealthCheck `json:"health,omitempty"`
	// Sources are the clients that may use the service.
	Sources FileSources `json:"sources,omitzero"`
	// Backends may be an empty list.
	Backends []FileBackend `json:"backends"`
}

// FileHealthCheck is a health check of a configuration file.
//
// +kubebuilder:object:generate=false
type FileHealthCheck struct {
	HealthCheck `json:",inline"`
	// Body is a regular expression (RE2) that has to match within the first 64 KiB of a response's
	// body. Objects have none: their authors would choose how much work a node does.
	Body string `json:"body,omitempty"`
}

// FileSources are prefixes of clients. The longest one that contains an address decides; one
// in both lists denies.
//
// +kubebuilder:object:generate=false
type FileSources struct {
	// Allow isn't empty; by default all clients are allowed.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// FileBackend is a member in a configuration file.
//
// +kubebuilder:object:generate=false
type FileBackend struct {
	Address IPAddress `json:"address"`
	// Port is by default the service's.
	Port int32 `json:"port,omitempty" range:"1-65535"`

	MemberOptions `json:",inline"`

	// Node is the backend's node in mode dsr, by default this one; Outside says that it runs on
	// no participating node.
	Node    IPAddress `json:"node,omitempty"`
	Outside bool      `json:"outside,omitempty"`
}
