// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"fmt"
	"net/netip"
	"testing"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/test/cluster"
)

// A namespace asks for 10,000 ports, 100,000 endpoints and 100,000 source ranges. Clients of "web"
// lose nothing, and the Services that aren't served as they ask for say so.
func testGreedyTenant(t *testing.T, i *installation) {
	const namespace = "greedy"
	i.Kubectl(t, "create", "namespace", namespace)
	defer i.Kubectl(t, "delete", "namespace", namespace)
	i.scale(t, 3)
	i.awaitRoutes(t, i.vips(t, "web"), i.names()...) // also where no step comes before this one
	services := i.Clients().CoreV1().Services(namespace)
	create := func(name string, change func(*core.ServiceSpec)) {
		t.Helper()
		svc := &core.Service{ObjectMeta: meta.ObjectMeta{
			Name: name, Labels: map[string]string{"service.kubernetes.io/service-proxy-name": "none"}, // kube-proxy would be busy
		}, Spec: core.ServiceSpec{
			Type: core.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: new(false), Ports: []core.ServicePort{{Name: "http", Port: 80}},
		}}
		change(&svc.Spec)
		if _, err := services.Create(t.Context(), svc, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(name, condition string) {
		t.Helper()
		cluster.Await(t, name+" to say why it is not served", func() error {
			svc, err := services.Get(t.Context(), name, meta.GetOptions{})
			if err == nil && !apimeta.IsStatusConditionFalse(svc.Status.Conditions, condition) {
				err = fmt.Errorf("conditions %v", svc.Status.Conditions)
			}
			return err
		})
	}
	i.under(t, func(l *load) {
		create("ports", func(s *core.ServiceSpec) {
			s.Ports = nil
			for n := range 10_000 {
				s.Ports = append(s.Ports, core.ServicePort{Name: fmt.Sprint("p", n), Port: int32(n + 1)})
			}
		})
		create("pods", func(*core.ServiceSpec) {})
		for n := range 100 {
			i.createEndpoints(t, namespace, "pods", n)
		}
		for n := range 25 {
			create(fmt.Sprint("ranges-", n), func(s *core.ServiceSpec) {
				for j := range 4000 {
					s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, fmt.Sprintf("10.%d.%d.0/24", j>>8, j&255))
				}
			})
		}
		refused("ports", v1alpha1.ConditionServiceAccepted)
		refused("pods", v1alpha1.ConditionServiceServed)
		refused("ranges-24", v1alpha1.ConditionServiceServed)
		l.goOn(t)
		i.Kubectl(t, "rollout", "restart", "deployment/web")
		i.settle(t, 3)
	}).unharmed(t)
}

// createEndpoints makes the nth slice of a Service's endpoints, 1,000 of 10.128.0.0/9 and no node.
func (i *installation) createEndpoints(t *testing.T, namespace, service string, n int) {
	t.Helper()
	port, protocol := int32(80), core.ProtocolTCP
	slice := &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{
			Name:   fmt.Sprintf("%s-%d", service, n),
			Labels: map[string]string{discovery.LabelServiceName: service, discovery.LabelManagedBy: "test.fairlead.io"},
		},
		AddressType: discovery.AddressTypeIPv4,
		Ports:       []discovery.EndpointPort{{Name: new("http"), Port: &port, Protocol: &protocol}},
	}
	for j := range 1000 {
		address := netip.AddrFrom4([4]byte{10, 128 + byte(n), byte(j >> 8), byte(j)})
		slice.Endpoints = append(slice.Endpoints, discovery.Endpoint{
			Addresses: []string{address.String()}, Conditions: discovery.EndpointConditions{Ready: new(true)},
		})
	}
	if _, err := i.Clients().DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), slice, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
