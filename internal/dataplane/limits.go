// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/lb"
)

// Limits says which services a data plane can serve; sources refuse the others.
type Limits struct {
	// Kind names the data plane, for example "xdp"; it may be empty.
	Kind     string
	Forwards []lb.Forward
	// OtherFamily are the modes in which backends may be of the other IP family than the VIP.
	OtherFamily []lb.Forward
	// Segments are the segment types that services and backends may have,
	// in addition to the untagged network.
	Segments []lb.SegmentType
	// MaxBackends is the number of backends of one service.
	MaxBackends int
	// Schedulers are those in addition to SchedulerMaglev.
	Schedulers []lb.Scheduler
	// Affinities are those in addition to AffinityFlow.
	Affinities []lb.Affinity
	// Rings says that all nodes choose the same backend for a flow, by a Maglev ring: Programmed
	// has the ring's size and entries. Without it they are the sum of the weights, and weights.
	Rings bool
	// Properties are the fields of lb.Properties that services may have.
	Properties []string
	// The rest says that backends may have a property: limits of connections, and the MAC address
	// of the next hop.
	MaxConnections, NextHopMACs bool
	// Or are the limits of other data planes, which serve services that this one
	// can't.
	Or []Limits
}

// Unlimited returns the limits of a data plane that serves everything, with that many backends of
// a service.
func Unlimited(backends int) Limits {
	tunnels := []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve}
	var properties []string
	for _, p := range lb.Properties() {
		properties = append(properties, p.Field)
	}
	return Limits{
		Forwards:    append(slices.Clone(tunnels), lb.NAT, lb.DSR),
		OtherFamily: tunnels,
		Segments:    []lb.SegmentType{lb.SegmentVLAN, lb.SegmentVXLAN, lb.SegmentGeneve},
		MaxBackends: backends,
		Schedulers:  []lb.Scheduler{lb.SchedulerRR, lb.SchedulerWRR, lb.SchedulerLC, lb.SchedulerWLC, lb.SchedulerSH},
		Affinities:  []lb.Affinity{lb.AffinityClient, lb.AffinityQUIC},
		Rings:       true, MaxConnections: true, NextHopMACs: true, Properties: properties,
	}
}

// Of returns the limits of one of the joined data planes, or l itself if none is of that kind.
func (l Limits) Of(kind string) Limits {
	for _, one := range append([]Limits{l}, l.Or...) {
		if one.Kind == kind {
			one.Or = nil
			return one
		}
	}
	return l
}

// Check returns everything in a service that the data plane can't serve; none
// means that it can, or that one of the limits joined by Or can. Otherwise each of
// them has its refusals. lb.Service.Check finds errors that every data plane refuses.
func (l Limits) Check(s *lb.Service) []lb.FieldError {
	refused := l.check(s)
	for _, other := range l.Or {
		if len(refused) == 0 {
			return nil
		}
		found := other.check(s)
		if len(found) == 0 {
			return nil
		}
		refused = append(refused, found...)
	}
	return refused
}

// check does as Check without Or.
func (l Limits) check(s *lb.Service) []lb.FieldError {
	var found []lb.FieldError
	add := func(path string, err error) {
		if err != nil {
			found = append(found, lb.FieldError{Path: path, Err: err})
		}
	}
	add("forward", l.checkForward(s.Forward))
	add("segment.type", l.checkSegment(s.Segment))
	add("affinity", served(l, "affinity", s.Affinity, l.affinities()))
	add("scheduler", served(l, "scheduler", s.Scheduler, l.schedulers()))
	for _, p := range lb.Properties() {
		if value := p.Value(s); value != "" && !slices.Contains(l.Properties, p.Field) {
			add(p.Field, l.refuse(value))
		}
	}
	if n := len(s.Backends); n > l.MaxBackends {
		add("backends", fmt.Errorf("%d backends are too many: %s serves at most %d", n, l.name(), l.MaxBackends))
	}
	options := l.backendOptions()
	for i, b := range s.Backends {
		for _, o := range options {
			if value := o.value(s, b); value != "" && !o.has {
				add(fmt.Sprintf("backends[%d].%s", i, o.field), l.refuse(value))
			}
		}
		if err := l.checkSegment(b.Segment); err != nil {
			add(fmt.Sprintf("backends[%d].segment.type", i), err)
		}
		if err := l.checkFamily(s, b); err != nil {
			add(fmt.Sprintf("backends[%d].address", i), err)
		}
	}
	return found
}

// backendOption is a property that backends have or not.
type backendOption struct {
	field string
	has   bool
	value func(*lb.Service, lb.Backend) string
}

func (l Limits) backendOptions() []backendOption {
	return []backendOption{
		{"maxConnections", l.MaxConnections, func(_ *lb.Service, b lb.Backend) string { return lb.Given(b.MaxConnections) }},
		{"mac", l.NextHopMACs, func(s *lb.Service, b lb.Backend) string {
			if s.Forward.Overlay() != lb.SegmentUnset { // the backend's own, which the mode needs
				return ""
			}
			return lb.Given(b.MAC)
		}},
	}
}

func (l Limits) checkForward(f lb.Forward) error {
	err := served(l, "forwarding mode", f, l.Forwards)
	if err != nil && f == lb.DSR && slices.Contains(l.Forwards, lb.NAT) {
		return fmt.Errorf("%w: use nat, or data plane xdp", err)
	}
	return err
}

func (l Limits) checkSegment(s lb.Segment) error {
	if !s.Tagged() {
		return nil
	}
	return served(l, "segment type", s.Type, l.Segments)
}

// checkFamily compares the families of a backend and of the VIP. In translating modes and with
// invalid addresses lb.Service.Check does.
func (l Limits) checkFamily(s *lb.Service, b lb.Backend) error {
	other := b.Address.IsValid() && s.Address.IsValid() && b.Address.Is4() != s.Address.Is4()
	if !other || s.Forward.Translates() || !slices.Contains(l.Forwards, s.Forward) || slices.Contains(l.OtherFamily, s.Forward) {
		return nil
	}
	return l.refuse(fmt.Sprintf("%s of another family than the VIP with %s", b.Address, s.Forward))
}

// name is how errors name the data plane.
func (l Limits) name() string {
	if l.Kind == "" {
		return "this data plane"
	}
	return "data plane " + l.Kind
}

func (l Limits) refuse(value string) error {
	return fmt.Errorf("%s can't be served by %s", value, l.name())
}

// affinities and schedulers are all of them, with the default.
func (l Limits) affinities() []lb.Affinity {
	return append([]lb.Affinity{lb.AffinityFlow}, l.Affinities...)
}

func (l Limits) schedulers() []lb.Scheduler {
	return append([]lb.Scheduler{lb.SchedulerMaglev}, l.Schedulers...)
}

// served returns an error if value is not among those that are served. The zero
// value is the default, or not given at all, which is lb.Service.Check's to say.
func served[T interface {
	comparable
	fmt.Stringer
}](l Limits, kind string, value T, known []T) error {
	var unset T
	if value == unset || slices.Contains(known, value) {
		return nil
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = k.String()
	}
	return fmt.Errorf("%w (it serves %s)", l.refuse(kind+" "+value.String()), cmp.Or(strings.Join(names, ", "), "none"))
}
