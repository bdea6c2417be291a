// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"net/netip"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

const (
	// serviceName makes the name of the nth Service, and its EndpointSlice's.
	serviceName = "web-%d"
	servicePort = 80
	podPort     = 8080
	// pool has the addresses of the Services.
	pool = "10.64.0.0/16"
)

// balancerNode is the Node of the agent, and workerNode that of the nth endpoint of
// every Service.
func (w *world) balancerNode() string { return w.name + "-lb" }

func (w *world) workerNode(n int) string { return fmt.Sprintf("%s-worker%d", w.name, n) }

// setting is all but Services and EndpointSlices, in the order in which it is made.
// The agent's pod is there for the controller to see that the node serves.
func (w *world) setting() []client.Object {
	balancer := w.node(w.balancerNode(), balancerAddress)
	balancer.Labels = w.labels()
	all := []client.Object{&core.Namespace{ObjectMeta: meta.ObjectMeta{Name: w.name}}, balancer}
	for n := range endpoints {
		all = append(all, w.node(w.workerNode(n), workerAddress(n)))
	}
	return append(all, w.agentPod(),
		&v1alpha1.AddressPool{
			ObjectMeta: meta.ObjectMeta{Name: w.name},
			Spec: v1alpha1.AddressPoolSpec{
				Addresses: []v1alpha1.AddressRange{pool}, ServiceSelector: new(w.selector()),
			},
		},
		&v1alpha1.LoadBalancerGroup{
			ObjectMeta: meta.ObjectMeta{Name: w.name},
			Spec: v1alpha1.LoadBalancerGroupSpec{
				Size: 1, NodeSelector: w.selector(), Services: v1alpha1.ServiceFilter{Selector: new(w.selector())},
			},
		})
}

// node is one that is ready.
func (w *world) node(name string, address netip.Addr) *core.Node {
	return &core.Node{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Status: core.NodeStatus{
			Addresses:  []core.NodeAddress{{Type: core.NodeInternalIP, Address: address.String()}},
			Conditions: []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}},
		},
	}
}

// agentPod is the one that the DaemonSet would have made.
func (w *world) agentPod() *core.Pod {
	return &core.Pod{
		ObjectMeta: meta.ObjectMeta{
			Name: "agent", Namespace: w.name,
			Labels: map[string]string{"app.kubernetes.io/name": "fairlead", "app.kubernetes.io/component": "agent"},
		},
		Spec: core.PodSpec{
			NodeName: w.balancerNode(), AutomountServiceAccountToken: new(false),
			Containers: []core.Container{{Name: "agent", Image: "localhost/fairlead"}},
		},
		Status: core.PodStatus{
			Phase:      core.PodRunning,
			Conditions: []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}},
		},
	}
}

// service is the nth.
func (w *world) service(n int) *core.Service {
	return &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf(serviceName, n), Namespace: w.name, Labels: w.labels()},
		Spec: core.ServiceSpec{
			Type: core.ServiceTypeLoadBalancer, LoadBalancerClass: new(v1alpha1.LoadBalancerClass),
			AllocateLoadBalancerNodePorts: new(false),
			Ports:                         []core.ServicePort{{Name: "http", Port: servicePort}},
		},
	}
}

// slice is that of the nth Service: one endpoint on each worker. They say what
// Kubernetes' own controller says of pods.
func (w *world) slice(n int) *discovery.EndpointSlice {
	name := fmt.Sprintf(serviceName, n)
	s := &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{
			Name: name, Namespace: w.name, Labels: map[string]string{discovery.LabelServiceName: name},
		},
		AddressType: discovery.AddressTypeIPv4,
		Ports:       []discovery.EndpointPort{{Name: new("http"), Port: new(int32(podPort)), Protocol: new(core.ProtocolTCP)}},
	}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{
			Addresses:  []string{podAddress(i, n).String()},
			Conditions: discovery.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(w.workerNode(i)),
			TargetRef:  &core.ObjectReference{Kind: "Pod", Namespace: w.name, Name: fmt.Sprintf("%s-%d", name, i)},
		})
	}
	return s
}
