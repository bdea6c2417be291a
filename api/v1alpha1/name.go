// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// LoadBalancerClass is the spec.loadBalancerClass of Services that Fairlead serves.
const LoadBalancerClass = "fairlead.io/lb"

// Annotations of a Service, which its users write.
const (
	// AnnotationAddresses are the requested addresses, separated by commas: at most one
	// of each family.
	AnnotationAddresses = "fairlead.io/addresses"
	// AnnotationAddressPool is the name of the requested AddressPool.
	AnnotationAddressPool = "fairlead.io/address-pool"
	// AnnotationSharingKey allows Services of one namespace with the same key to share
	// an address, on different ports.
	AnnotationSharingKey = "fairlead.io/sharing-key"
	// AnnotationForward is the forwarding mode: "dsr" or "nat" to pods, or "l2dsr",
	// "ipip" or "gue" to nodes whose kube-proxy takes over.
	AnnotationForward = "fairlead.io/forward"
	// AnnotationHealthCheck is the protocol of probes in addition to readiness: "none",
	// "tcp", "http", "https", "grpc", "dns", "udp" or "icmp".
	AnnotationHealthCheck = "fairlead.io/health-check"
	// AnnotationHealthCheckMethod is the method of http and https probes: "GET" (default),
	// "HEAD" or "OPTIONS".
	AnnotationHealthCheckMethod = "fairlead.io/health-check-method"
	// AnnotationHealthCheckPath is the path of http and https probes. The default is
	// "/".
	AnnotationHealthCheckPath = "fairlead.io/health-check-path"
	// AnnotationHealthCheckQuery is the name that dns probes query, and the type of its
	// records: "example.com AAAA". The default type is A.
	AnnotationHealthCheckQuery = "fairlead.io/health-check-query"
	// AnnotationHealthCheckSend is the datagram of udp probes, as in the field send of a
	// HealthCheck. The default is an empty datagram.
	AnnotationHealthCheckSend = "fairlead.io/health-check-send"
	// AnnotationHealthCheckExpect is a text that responses to udp probes have to contain, as in
	// the field expect of a HealthCheck. By default only a closed port is a failure.
	AnnotationHealthCheckExpect = "fairlead.io/health-check-expect"
	// AnnotationHealthCheckPort is the port to probe. The default is the port of each
	// endpoint.
	AnnotationHealthCheckPort = "fairlead.io/health-check-port"
	// AnnotationHealthCheckInterval is the time between two probes, such as "500ms".
	// The default is "2s".
	AnnotationHealthCheckInterval = "fairlead.io/health-check-interval"
	// AnnotationNewFlows is the maximum number of new flows per second of each address and
	// port on each node. The default is the group's.
	AnnotationNewFlows = "fairlead.io/new-flows"
	// AnnotationNewFlowsPerSource is the same for each client, an IPv4 address or an IPv6
	// /64.
	AnnotationNewFlowsPerSource = "fairlead.io/new-flows-per-source"
	// AnnotationScheduler chooses the endpoints of new connections: "maglev" (default), or,
	// with the data plane ipvs and the group's spec.dataPlane.ipvs, "rr", "wrr", "lc", "wlc" or
	// "sh".
	AnnotationScheduler = "fairlead.io/scheduler"
	// AnnotationMaxConnections is the number of connections of each endpoint and port
	// through one node from which on the endpoint gets no new ones. It needs the data plane
	// ipvs, and the group's spec.dataPlane.ipvs.
	AnnotationMaxConnections = "fairlead.io/max-connections"
	// AnnotationFirewallMark joins the ports of the Service: the data plane schedules them
	// as one, so a client gets one endpoint on all ports. It is 1 to 4294967295, and no
	// other object of the namespace has the same one. It needs the data plane ipvs, and the
	// group's spec.dataPlane.firewallMarkMask.
	AnnotationFirewallMark = "fairlead.io/firewall-mark"
)

// HashSeedKey is the key of the hash seed in its Secret: a decimal number of 64 bits.
const HashSeedKey = "seed"

// Types of conditions. The status of each kind lists its own.
const (
	// ConditionReady: all that the object requests is in operation.
	ConditionReady = "Ready"
	// ConditionAllocated: the object has its addresses. Services use
	// ConditionServiceAllocated.
	ConditionAllocated = "Allocated"
	// ConditionEstablished: all nodes have a session with the router.
	ConditionEstablished = "Established"
	// ConditionProgrammed: each ready node of the group has programmed the object as it is
	// specified; of a group, all that it serves. ConditionBackendsHealthy: health checks found none
	// of its backends dead. ConditionAnnounced: a node announces its addresses.
	ConditionProgrammed      = "Programmed"
	ConditionBackendsHealthy = "BackendsHealthy"
	ConditionAnnounced       = "Announced"
	// ConditionScaled: the group can have as many nodes as its load needs, and fewer when it needs
	// fewer.
	ConditionScaled = "Scaled"
	// ConditionServiceAllocated, ConditionServiceAccepted (the annotations are valid, and the
	// Service is served as they say) and ConditionServiceServed (a group serves the addresses;
	// its message is then the name of the LoadBalancerGroup, which agents obey) are conditions
	// of Services, whose names have a prefix because other controllers write conditions too.
	ConditionServiceAllocated = "fairlead.io/Allocated"
	ConditionServiceAccepted  = "fairlead.io/Accepted"
	ConditionServiceServed    = "fairlead.io/Served"
	// Conditions from nodes' reports, as a LoadBalancer has them.
	ConditionServiceProgrammed      = "fairlead.io/Programmed"
	ConditionServiceBackendsHealthy = "fairlead.io/BackendsHealthy"
	ConditionServiceAnnounced       = "fairlead.io/Announced"
)
