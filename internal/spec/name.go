// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/api/v1alpha1"
)

// balancerPrefix begins the names of LoadBalancers' services. Names of Services have no colon.
const balancerPrefix = "flb:"

// PortName is the name of the service of a Service's port: "namespace/name/port", with "/ipv6" for
// IPv6 addresses, so that adding an address of the other family doesn't change a name.
func PortName(svc *corev1.Service, port *corev1.ServicePort, address netip.Addr) string {
	name := svc.Namespace + "/" + svc.Name + "/" + cmp.Or(port.Name, strconv.Itoa(int(port.Port)))
	if address.Is4() {
		return name
	}
	return name + "/ipv6"
}

// ListenerName is the name of the service of a LoadBalancer's listener.
func ListenerName(b *v1alpha1.LoadBalancer, listener string) string {
	return balancerPrefix + b.Namespace + "/" + b.Name + "/" + listener
}

// ObjectOf returns the object that a service with this name is of, a Service or a LoadBalancer; an
// empty kind for another name.
func ObjectOf(service string) (kind, namespace, name string) {
	service, balancer := strings.CutPrefix(service, balancerPrefix)
	parts := strings.Split(service, "/")
	switch {
	case len(parts) < 3:
		return "", "", ""
	case balancer:
		return "LoadBalancer", parts[0], parts[1]
	}
	return "Service", parts[0], parts[1]
}
