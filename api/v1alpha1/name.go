// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// LoadBalancerClass is the spec.loadBalancerClass of Services that are
// Fairlead's.
const LoadBalancerClass = "fairlead.io/lb"

// Annotations of a Service. Users write all but AnnotationGroup.
const (
	// AnnotationAddresses are the addresses that the Service wants, separated by
	// commas: at most one of each family.
	AnnotationAddresses = "fairlead.io/addresses"
	// AnnotationAddressPool is the AddressPool from which it wants them.
	AnnotationAddressPool = "fairlead.io/address-pool"
	// AnnotationSharingKey lets Services of one namespace with the same key have the
	// same address, on different ports.
	AnnotationSharingKey = "fairlead.io/sharing-key"
	// AnnotationForward is how packets are brought to endpoints: "dnat" or "nat", or
	// "l2dsr", "ipip" or "gue" to nodes whose kube-proxy takes them.
	AnnotationForward = "fairlead.io/forward"
	// AnnotationHealthCheck is how endpoints are probed beside what their readiness
	// says: "none", "tcp", "http", "https", "grpc" or "icmp".
	AnnotationHealthCheck = "fairlead.io/health-check"
	// AnnotationHealthCheckPath is what http and https checks ask for; "/", if it is
	// not given.
	AnnotationHealthCheckPath = "fairlead.io/health-check-path"
	// AnnotationHealthCheckPort is where endpoints are probed; each one's own port, if
	// it is not given.
	AnnotationHealthCheckPort = "fairlead.io/health-check-port"
	// AnnotationHealthCheckInterval is the time between two probes, such as "500ms";
	// "2s", if it is not given.
	AnnotationHealthCheckInterval = "fairlead.io/health-check-interval"
	// AnnotationGroup is the LoadBalancerGroup that serves the Service. The
	// controller alone writes it.
	AnnotationGroup = "fairlead.io/group"
)

// Types of conditions. Each kind says which of them it has.
const (
	// ConditionReady: everything that the object asks for is at work.
	ConditionReady = "Ready"
	// ConditionAllocated: the object has its addresses. On Services its name is
	// ConditionServiceAllocated.
	ConditionAllocated = "Allocated"
	// ConditionServiceAllocated and ConditionServiceAccepted are ConditionAllocated,
	// and that annotations are understood, of Services, whose conditions others write
	// too. ConditionServiceServed, that a group serves what has addresses, is there
	// once none did.
	ConditionServiceAllocated = "fairlead.io/Allocated"
	ConditionServiceAccepted  = "fairlead.io/Accepted"
	ConditionServiceServed    = "fairlead.io/Served"
)
