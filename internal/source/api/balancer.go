// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/owner"
	"fairlead.io/fairlead/internal/spec"
)

// kind is the kind of all objects.
const kind source.Kind = "LoadBalancer"

// object is a LoadBalancer as the server sent it, translated for this node.
type object struct {
	id      source.Object
	version string
	// digest is the hash of the text; equal ones are of the same object.
	digest uint64
	// known says that the node has the object already: there is nothing else in it.
	known bool
	// unreadable objects are served as before.
	unreadable bool
	created    time.Time
	services   []lb.Service
	problems   []string
}

// readObject reads a LoadBalancer, unless the node has it already. It is an error if not even its name
// can be read.
func (s *Source) readObject(text []byte) (o object, err error) {
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
	o.digest = maphash.Bytes(s.seed, text)
	if before, known := s.objects[o.id]; known && before.digest == o.digest {
		o.known = true
		return o, nil
	}
	b := &v1alpha1.LoadBalancer{}
	if err := json.Unmarshal(text, b); err != nil {
		o.unreadable, o.problems = true, []string{"can't be read: " + err.Error()}
		return o, nil //nolint:nilerr // one object's error is a problem of it
	}
	o.created = b.CreationTimestamp.Time
	o.services, o.problems = s.translate(b)
	return o, nil
}

// set adds or replaces an object, with the lock held. One that can't be read is served as it was.
func (s *Source) set(o object) {
	if o.known {
		return
	}
	s.objects[o.id] = status{o.digest, o.problems}
	if !o.unreadable {
		s.vips.Set(owner.Claims{Object: o.id, Created: o.created, Services: o.services})
	}
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
