// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BGPPeer is a router to which agents announce the addresses that their nodes serve.
// The agents' own ASN is a setting of the installation.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=fairlead,shortName=fpeer
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="ASN",type=integer,JSONPath=`.spec.asn`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Established",type=integer,JSONPath=`.status.established`
// +kubebuilder:printcolumn:name="BFD",type=boolean,JSONPath=`.spec.bfd.enabled`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BGPPeer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Spec BGPPeerSpec `json:"spec"`
	// +optional
	Status BGPPeerStatus `json:"status,omitzero"`
}

// BGPPeerSpec defines the router and the sessions with it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.multihop) || !has(self.ttlSecurity)",message="not with multihop, which says itself how many hops away the router may be",fieldPath=".ttlSecurity"
// +kubebuilder:validation:XValidation:rule="!has(self.port) || !has(self.passive) || !self.passive",message="not with passive: the router calls, not the agents",fieldPath=".port"
type BGPPeerSpec struct {
	// NodeSelector selects the nodes that have sessions with the router. The default is
	// all nodes.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="want the operators In and NotIn with values, Exists and DoesNotExist without"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// PasswordSecretRef is a key of a Secret in the agents' namespace with the TCP MD5
	// password (RFC 2385). By default there is no password.
	//
	// +optional
	PasswordSecretRef *SecretKeySelector `json:"passwordSecretRef,omitempty"`

	PeerOptions `json:",inline"`
}

// PeerOptions are a router, and a peer of a node's configuration file.
type PeerOptions struct {
	// Address is the router's address, IPv4 or IPv6. The peers of one node have
	// distinct addresses. Link-local IPv6 addresses are not allowed, as they need a
	// zone; an address of the node itself (127.0.0.1) is allowed.
	//
	// +required
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self) && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).isLinkLocalUnicast() && ip(self).family() == 4)",message="want a unicast address in canonical form that needs no zone, such as 192.0.2.1 or 2001:db8::1"
	Address string `json:"address"`
	// ASN is the router's autonomous system. If it differs from the agents', the
	// session is eBGP. 4294967295 is reserved (RFC 7300).
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	ASN int64 `json:"asn" range:"1-4294967294"`
	// Port is the port on which the router listens. The default is 179.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty" range:"1-65535"`
	// Passive waits for the router to connect. The default is false.
	//
	// +optional
	Passive bool `json:"passive,omitempty"`
	// Multihop is the maximum distance of an eBGP router in hops. The default is a
	// directly connected router.
	//
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=255
	Multihop int32 `json:"multihop,omitempty" range:"2-255"`

	SessionOptions `json:",inline"`
}

// SessionOptions are options of sessions with a router, and with clients of a route reflector.
type SessionOptions struct {
	// TTLSecurity is the maximum distance of received packets in hops (RFC 5082). It
	// excludes multihop.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=254
	TTLSecurity int32 `json:"ttlSecurity,omitempty" range:"1-254"`
	// HoldTime is the BGP hold time in whole seconds, at least 3s. The default is 90s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('3s') && duration(self) <= duration('65535s') && duration(self).getMilliseconds() % 1000 == 0",message="want whole seconds, 3s to 65535s"
	HoldTime *metav1.Duration `json:"holdTime,omitempty"`
	// RestartTime is how long the router keeps routes while an agent restarts (graceful
	// restart, RFC 4724), in whole seconds; 0s disables it. The default is 60s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('4095s') && duration(self).getMilliseconds() % 1000 == 0",message="want whole seconds, 0s to 4095s"
	RestartTime *metav1.Duration `json:"restartTime,omitempty"`
	// BFD monitors the router, and allows the router to monitor the nodes (RFC 5880).
	// By default there is no BFD.
	//
	// +optional
	BFD BFD `json:"bfd,omitzero"`
}

// BFD has the parameters of BFD sessions.
type BFD struct {
	// Enabled enables BFD. The default is true.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
	// Interval is the time between two packets in each direction. The default is 100ms.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('60s')",message="want 10ms to 60s"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Multiplier is the number of missing packets after which the router is down. The
	// default is 3.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	Multiplier int32 `json:"multiplier,omitempty" range:"1-255"`
	// Multihop sets whether packets may pass routers: true for UDP port 4784 (RFC 5883),
	// false for 3784 (RFC 5881). The default is true with the peer's multihop, with a
	// ttlSecurity above 1, and if the node's route to the router has a gateway.
	//
	// +optional
	Multihop *bool `json:"multihop,omitempty"`
}

// SecretKeySelector names a key of a Secret in the agents' namespace.
type SecretKeySelector struct {
	// Name is the name of the Secret.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key is the key in the Secret. The default is "password".
	//
	// +optional
	// +kubebuilder:default=password
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`
}

// BGPPeerStatus sums up the sessions of all nodes with the router. The BalancerNode of each
// node has its own ones.
type BGPPeerStatus struct {
	// Nodes is the number of ready nodes that should have a session.
	//
	// +optional
	Nodes int32 `json:"nodes"`
	// Established is the number of them that have one.
	//
	// +optional
	Established int32 `json:"established"`
	// Conditions: Established.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BGPPeerList is a list of peers.
//
// +kubebuilder:object:root=true
type BGPPeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []BGPPeer `json:"items"`
}
