// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Objects of the namespace that requests too much: a Service of excessPorts ports, one of
// excessSlices EndpointSlices with as many endpoints as one may have, and excessRanged of as many
// source ranges as an object has room for, 100,000 in all. The group refuses most of it.
const (
	excessPorts  = 10_000
	excessSlices = 100
	perSlice     = 1000
	excessRanged = 25
	rangesEach   = 4000
)

// excessive is the name of the namespace that asks for too much.
func (o *objects) excessive() string { return o.name + "-excess" }

// exceed writes the namespace that asks for too much, or for a part of that.
func (o *objects) exceed(ctx context.Context, part int) error {
	if err := o.client.Create(ctx, o.namespace(o.excessive())); err != nil {
		return fmt.Errorf("namespace %s: %w", o.excessive(), err)
	}
	var errs []error
	add := func(object client.Object) { errs = append(errs, o.client.Create(ctx, object)) }
	add(o.wish("ports", func(s *core.ServiceSpec) {
		s.Ports = nil
		for i := range excessPorts / part {
			s.Ports = append(s.Ports, core.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1)})
		}
	}))
	add(o.wish("pods", func(*core.ServiceSpec) {}))
	for i := range excessSlices / part {
		add(o.manyPods(i))
	}
	for i := range excessRanged / part {
		add(o.wish(fmt.Sprintf("ranges-%d", i), func(s *core.ServiceSpec) {
			for j := range rangesEach {
				s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, fmt.Sprintf("10.%d.%d.0/24", j>>8, j&255))
			}
		}))
	}
	return errors.Join(errs...)
}

// wish is a Service of the namespace that asks for too much, which has the group's label.
func (o *objects) wish(name string, change func(*core.ServiceSpec)) *core.Service {
	s := o.service(0)
	s.ObjectMeta = meta.ObjectMeta{Name: name, Namespace: o.excessive(), Labels: o.labels()}
	change(&s.Spec)
	return s
}

// manyPods is the nth EndpointSlice of the Service "pods".
func (o *objects) manyPods(n int) *discovery.EndpointSlice {
	s := emptySlice(o.excessive(), "pods", fmt.Sprintf("pods-%d", n))
	address := podAddress(n%endpoints, n/endpoints*perSlice)
	for range perSlice {
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{
			Addresses: []string{address.String()}, Conditions: discovery.EndpointConditions{Ready: new(true)},
		})
		address = address.Next()
	}
	return s
}
