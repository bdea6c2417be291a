// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LoadBalancer is a virtual address for machines outside the cluster: virtual machines
// and bare metal. It uses the terms of OpenStack's Octavia: listeners refer to pools,
// which have members.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=fairlead,shortName=flb
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.status.group`
// +kubebuilder:printcolumn:name="Forward",type=string,JSONPath=`.spec.forward`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LoadBalancer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Spec LoadBalancerSpec `json:"spec"`
	// +optional
	Status LoadBalancerStatus `json:"status,omitzero"`
}

// LoadBalancerSpec defines the address, its listeners and their pools.
//
// +kubebuilder:validation:XValidation:rule="!has(self.listeners) || self.listeners.all(l, !has(l.pool) || l.pool.size() == 0 || has(self.pools) && self.pools.exists(p, p.name == l.pool))",message="a listener's pool is missing in pools",fieldPath=".listeners"
// +kubebuilder:validation:XValidation:rule="!has(self.address) || !isIP(self.address) || !has(self.ipFamily) || (ip(self.address).family() == 4) == (self.ipFamily == 'IPv4')",message="the address is of the other family",fieldPath=".ipFamily"
// +kubebuilder:validation:XValidation:rule="!has(self.segment) || has(self.address)",message="an address in a segment has to be given",fieldPath=".address"
// +kubebuilder:validation:XValidation:rule="!has(self.segment) || self.segment.type == 'vlan' || self.forward != 'nat' && (!has(self.pools) || self.pools.all(p, !has(p.forward) || p.forward != 'nat'))",message="nat serves no clients in vxlan and geneve segments",fieldPath=".segment"
// +kubebuilder:validation:XValidation:rule="!has(self.address) || !has(self.pools) || self.pools.all(p, !has(p.members) || p.members.all(m, m.address != self.address))",message="a member has the virtual address itself",fieldPath=".pools"
// +kubebuilder:validation:XValidation:rule="!has(self.address) || !has(self.pools) || self.pools.all(p, (has(p.forward) ? p.forward : self.forward) != 'nat' || !has(p.members) || p.members.all(m, m.address.contains(':') == self.address.contains(':')))",message="nat translates within IPv4 or IPv6: a member is of the other family",fieldPath=".pools"
// +kubebuilder:validation:XValidation:rule="!has(self.pools) || self.pools.all(p, !((has(p.forward) ? p.forward : self.forward) in ['vxlan', 'geneve']) || !has(p.members) || p.members.all(m, has(m.tunnelEnd) && has(m.mac)))",message="members behind vxlan and geneve need tunnelEnd and mac",fieldPath=".pools"
// +kubebuilder:validation:XValidation:rule="!has(self.pools) || self.pools.all(p, !((has(p.forward) ? p.forward : self.forward) in ['vxlan', 'geneve']) || !has(p.members) || p.members.all(m, has(m.segment) ? m.segment.type == (has(p.forward) ? p.forward : self.forward) : has(self.segment) && self.segment.type == (has(p.forward) ? p.forward : self.forward)))",message="members behind vxlan and geneve are in a segment of that type",fieldPath=".pools"
// +kubebuilder:validation:XValidation:rule="!has(self.pools) || self.pools.all(p, (has(p.forward) ? p.forward : self.forward) in ['vxlan', 'geneve'] || !has(p.members) || p.members.all(m, !has(m.tunnelEnd) && (!has(m.segment) || m.segment.type == 'vlan')))",message="only members behind vxlan and geneve have a tunnelEnd, or a segment that is not a vlan",fieldPath=".pools"
// +kubebuilder:validation:XValidation:rule="!has(self.firewallMark) || !has(self.pools) || self.pools.all(p, !has(p.forward))",message="joined listeners have one forwarding mode: a pool has its own",fieldPath=".firewallMark"
type LoadBalancerSpec struct {
	// Address is the virtual address. It must be in an AddressPool, unless it is in a
	// segment. The default is an address from a pool.
	//
	// +optional
	Address IPAddress `json:"address,omitempty"`
	// AddressPool is the name of the pool of the address. The default is any eligible
	// pool.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AddressPool string `json:"addressPool,omitempty"`
	// IPFamily is the family of an address from a pool. The default is IPv4.
	//
	// +optional
	// +kubebuilder:validation:Enum=IPv4;IPv6
	IPFamily string `json:"ipFamily,omitempty"`
	// Segment is the virtual network of the address. Each segment has its own
	// addresses, which are in no pool. The default is the untagged network.
	//
	// +optional
	Segment *Segment `json:"segment,omitempty"`
	// Forward is the forwarding mode of pools without one of their own.
	//
	// +required
	// +kubebuilder:validation:Enum=l2dsr;ipip;gue;vxlan;geneve;nat
	Forward string `json:"forward"`
	// FirewallMark joins the listeners: the data plane schedules them as one service, so a
	// client gets one member on all ports. No other object of the namespace has the same mark.
	// It needs the data plane ipvs, and the group's dataPlane.firewallMarkMask. By default
	// each listener is scheduled separately.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	FirewallMark int64 `json:"firewallMark,omitempty"`
	// Listeners have distinct names, and distinct pairs of port and protocol. Without any the
	// address is reserved.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.port == b.port && a.protocol == b.protocol))",message="two listeners have the same port and protocol"
	Listeners []Listener `json:"listeners,omitempty"`
	// Pools have distinct names.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Pools []Pool `json:"pools,omitempty"`
}

// IPAddress is a unicast address, IPv4 or IPv6, in canonical form (RFC 5952). Loopback,
// multicast, unspecified, broadcast and IPv4-mapped addresses are not allowed, nor is a
// zone.
//
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self) && (ip(self).isGlobalUnicast() || ip(self).isLinkLocalUnicast())",message="want a unicast address in canonical form, such as 192.0.2.1 or 2001:db8::1"
type IPAddress string

// Segment is a virtual network.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'vlan' || self.id <= 4094",message="a VLAN id is 1 to 4094",fieldPath=".id"
type Segment struct {
	// Type is the type of the network.
	//
	// +required
	// +kubebuilder:validation:Enum=vlan;vxlan;geneve
	Type string `json:"type"`
	// ID is the number of the network: 1 to 4094 for VLAN, up to 16777215 for VXLAN and
	// Geneve.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	ID int64 `json:"id,omitempty" range:"0-4294967295"`
}

// Listener is a port of the address.
//
// +kubebuilder:validation:XValidation:rule="!has(self.quic) || has(self.protocol) && self.protocol == 'UDP'",message="QUIC runs over UDP",fieldPath=".quic"
type Listener struct {
	// Name is unique among the listeners.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Port is the port for clients.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Protocol is TCP or UDP. The default is TCP.
	//
	// +optional
	// +kubebuilder:validation:Enum=TCP;UDP
	// +kubebuilder:default=TCP
	Protocol string `json:"protocol,omitempty"`
	// Pool is the name of one of spec.pools. A listener without pool has no members.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Pool string `json:"pool,omitempty"`
	// SourceRanges are the prefixes of clients that may use the listener. The default
	// is all clients.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self) && string(cidr(self).masked()) == self",message="want a CIDR in canonical form without host bits, such as 192.0.2.0/24"
	SourceRanges []string `json:"sourceRanges,omitempty"`
	// Enabled is false for a listener that accepts no traffic. The default is true.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	ListenerOptions `json:",inline"`
}

// ListenerOptions are optional properties of a listener, and of a service of a node's
// configuration file.
type ListenerOptions struct {
	// QUIC is the format of the connection IDs in which members write their server IDs, so that
	// a QUIC connection stays with its member when the client's address changes. The pool has no
	// sessionAffinity then. By default flows are identified by addresses and ports.
	//
	// +optional
	QUIC *QUIC `json:"quic,omitempty"`
	// Limits are the limits of new flows. The default is the group's.
	//
	// +optional
	Limits FlowLimits `json:"limits,omitzero"`
	// IdleTimeout is the time without packets after which a flow has ended: flows that are
	// active keep their member when members change. The default is 10m for TCP and 2m for UDP.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="want 1s to 24h"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`
	// Unavailable is the treatment of client packets while no member is healthy: drop them,
	// or reject them, so that clients get an error at once. The default is drop.
	//
	// +optional
	// +kubebuilder:validation:Enum=drop;reject
	Unavailable string `json:"unavailable,omitempty"`
}

// QUIC is how servers encode their IDs in connection IDs, unencrypted
// (draft-ietf-quic-load-balancers): after one octet, whose first three bits are the
// configuration, follow the ID of the server and a nonce.
//
// +kubebuilder:validation:XValidation:rule="self.serverIDLength + self.nonceLength <= 19",message="server ID and nonce have at most 19 bytes together",fieldPath=".nonceLength"
type QUIC struct {
	// ConfigID is the number of the configuration. The default is 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=6
	ConfigID int32 `json:"configID,omitempty" range:"0-6"`
	// ServerIDLength is the number of bytes of server IDs.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=15
	ServerIDLength int32 `json:"serverIDLength" range:"1-15"`
	// NonceLength is the number of bytes of nonces.
	//
	// +required
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=18
	NonceLength int32 `json:"nonceLength" range:"0-255"`
}

// Pool is a set of members that serve the same content.
//
// +kubebuilder:validation:XValidation:rule="!has(self.sessionAffinityTimeout) || has(self.sessionAffinity) && self.sessionAffinity == 'ClientIP'",message="only with sessionAffinity ClientIP",fieldPath=".sessionAffinityTimeout"
type Pool struct {
	// Name is unique among the pools.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Forward is the forwarding mode of the pool. The default is the load balancer's.
	//
	// +optional
	// +kubebuilder:validation:Enum=l2dsr;ipip;gue;vxlan;geneve;nat
	Forward string `json:"forward,omitempty"`
	// SessionAffinity "ClientIP" sends all flows of a client to one member. The default
	// is None.
	//
	// +optional
	// +kubebuilder:validation:Enum=None;ClientIP
	// +kubebuilder:default=None
	SessionAffinity string `json:"sessionAffinity,omitempty"`
	// SessionAffinityTimeout is how long a client without new flows keeps its member, whatever
	// other members change. By default clients aren't remembered: the member is chosen by the
	// client's address.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="want 1s to 24h"
	SessionAffinityTimeout *metav1.Duration `json:"sessionAffinityTimeout,omitempty"`
	// MaxConnections is the default of the members' maxConnections.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	MaxConnections int32 `json:"maxConnections,omitempty"`
	// HealthCheck probes the members. By default all members count as healthy.
	//
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Members have distinct pairs of address and port.
	//
	// +optional
	// +listType=map
	// +listMapKey=address
	// +listMapKey=port
	// +kubebuilder:validation:MaxItems=256
	Members []Member `json:"members,omitempty"`

	PoolOptions `json:",inline"`
}

// PoolOptions are optional properties of a pool, and of a service of a node's configuration
// file.
type PoolOptions struct {
	// MinHealthy is the number of usable members below which the address isn't announced.
	// The default is 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	MinHealthy int32 `json:"minHealthy,omitempty" range:"1-65535"`
	// Scheduler chooses the members of new connections. All but "maglev" need the data
	// plane ipvs, and the group's dataPlane.ipvs. The default is maglev.
	//
	// +optional
	// +kubebuilder:validation:Enum=maglev;rr;wrr;lc;wlc;sh
	Scheduler string `json:"scheduler,omitempty"`
}

// Member is a server.
type Member struct {
	// Address is the address of the member; with vxlan and geneve its address in the
	// segment.
	//
	// +required
	Address IPAddress `json:"address"`
	// Port is the port of the member. It equals the listener's in all modes but nat, as
	// they deliver packets unchanged.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Enabled is false for a member that isn't used. The default is true.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	MemberOptions `json:",inline"`
}

// MemberOptions are optional properties of a member, and of a backend of a node's
// configuration file.
type MemberOptions struct {
	// MonitorAddress is the address that health checks probe in place of the member's, by the
	// routes of nodes: the forwarding mode makes no difference. The group has to allow it as
	// the address of a member. By default probes take the path of clients' packets.
	//
	// +optional
	MonitorAddress IPAddress `json:"monitorAddress,omitempty"`
	// MonitorPort is the port that health checks probe. The default is the health check's, or
	// else the member's.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	MonitorPort int32 `json:"monitorPort,omitempty" range:"1-65535"`
	// Weight is the member's share relative to the other members; 0 gets no new flows.
	// The default is 1.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=256
	Weight *int32 `json:"weight,omitempty" range:"0-256"`
	// Backup is true for a member that gets new flows only while all other members are
	// unhealthy, drained or of weight 0. The default is false.
	//
	// +optional
	Backup bool `json:"backup,omitempty"`
	// MaxConnections is the number of connections through one node from which on the
	// member gets no new ones. It needs the data plane ipvs, and the group's dataPlane.ipvs. The
	// default is the pool's; by default there is no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	MaxConnections int32 `json:"maxConnections,omitempty" range:"1-2147483647"`
	// ServerID is the member's ID in QUIC connection IDs, two hexadecimal digits for each byte.
	// Only listeners with quic use it. A member without one is reached by addresses and ports.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^([0-9a-fA-F]{2})+$`
	ServerID string `json:"serverID,omitempty"`
	// MAC is the MAC address of the next hop, in place of the neighbour table's; with
	// vxlan and geneve it is the member's own.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$`
	MAC string `json:"mac,omitempty"`
	// Segment is the virtual network of the member.
	//
	// +optional
	Segment *Segment `json:"segment,omitempty"`
	// TunnelEnd is the address of the tunnel end point in front of the member, with
	// vxlan and geneve only.
	//
	// +optional
	TunnelEnd IPAddress `json:"tunnelEnd,omitempty"`
}

// LoadBalancerStatus has the address of a LoadBalancer and the state of its parts.
type LoadBalancerStatus struct {
	// Address is the virtual address.
	//
	// +optional
	Address string `json:"address,omitempty"`
	// Group is the LoadBalancerGroup that serves it; empty if none does, also because its
	// namespace uses more of the group than that allows. Nodes obey it.
	//
	// +optional
	Group string `json:"group,omitempty"`
	// Conditions: Allocated, Ready, Programmed, BackendsHealthy and Announced.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Listeners has an entry for each listener of the spec.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Listeners []PartStatus `json:"listeners,omitempty"`
	// Pools has an entry for each pool of the spec.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Pools []PoolStatus `json:"pools,omitempty"`
}

// PartStatus is the state of a listener, a pool or a member.
type PartStatus struct {
	// Name is the name of the part.
	//
	// +required
	Name string `json:"name"`
	// Accepted is true if the part can be served.
	//
	// +optional
	Accepted bool `json:"accepted"`
	// Message is the reason why it cannot.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// PoolStatus is the state of a pool.
type PoolStatus struct {
	PartStatus `json:",inline"`
	// Members lists the members that can't be served, by address and port, with the
	// reason.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Members []PartStatus `json:"members,omitempty"`
}

// LoadBalancerList is a list of load balancers.
//
// +kubebuilder:object:root=true
type LoadBalancerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []LoadBalancer `json:"items"`
}
