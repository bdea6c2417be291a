// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/owner"
	"fairlead.io/fairlead/internal/spec"
)

// kind is the kind of all objects.
const kind source.Kind = "LoadBalancer"

// object is a LoadBalancer as the server sent it.
type object struct {
	id      source.Object
	version string
	// balancer is nil for an object that can't be read, with the error in problem.
	balancer *v1alpha1.LoadBalancer
	problem  string
}

// readObject reads a LoadBalancer. It is an error if not even its name can be read.
func readObject(text []byte) (o object, err error) {
	var head struct {
		Metadata struct{ Namespace, Name, ResourceVersion string }
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return o, fmt.Errorf("object: %w", err)
	}
	m := head.Metadata
	if m.Namespace == "" || m.Name == "" {
		return o, errors.New("object: without metadata.namespace and metadata.name")
	}
	o.id, o.version = source.Object{Kind: kind, Namespace: m.Namespace, Name: m.Name}, m.ResourceVersion
	b := &v1alpha1.LoadBalancer{}
	if err := json.Unmarshal(text, b); err != nil {
		o.problem = "can't be read: " + err.Error()
	} else {
		o.balancer = b
	}
	return o, nil
}

// set adds or replaces an object, with the lock held. One that can't be read is served as it was.
func (s *Source) set(o object) {
	if o.balancer == nil {
		s.objects[o.id] = []string{o.problem}
		return
	}
	services, problems := s.translate(o.balancer)
	s.objects[o.id] = problems
	s.vips.Set(owner.Claims{Object: o.id, Created: o.balancer.CreationTimestamp.Time, Services: services})
}

// remove removes an object, with the lock held.
func (s *Source) remove(id source.Object) {
	delete(s.objects, id)
	s.vips.Set(owner.Claims{Object: id})
}

// translate returns the services of a LoadBalancer, and its problems.
func (s *Source) translate(b *v1alpha1.LoadBalancer) (services []lb.Service, problems []string) {
	address, err := netip.ParseAddr(b.Status.Address)
	if err != nil {
		return nil, nil // no address yet
	}
	all, problems := spec.LoadBalancer(b, address)
	check := func(one *lb.Service) []lb.FieldError {
		found := s.check(one)
		if slices.ContainsFunc(services, func(other lb.Service) bool { return other.VIP == one.VIP || other.Name == one.Name }) {
			found = append(found, lb.FieldError{Path: "port", Err: errors.New("duplicate")})
		}
		return found
	}
	for _, one := range all {
		one, found, valid := spec.Servable(one, check)
		for _, f := range found {
			if text := fmt.Sprintf("%s: %s", one.VIP, f.Error()); !slices.Contains(problems, text) {
				problems = append(problems, text)
			}
		}
		if valid {
			services = append(services, one)
		}
	}
	return services, problems[:min(len(problems), source.MaxProblems)]
}

// check returns the errors of a service on this node.
func (s *Source) check(service *lb.Service) []lb.FieldError {
	return spec.CheckOnNode(service, s.Limits, s.TunnelEnds)
}
