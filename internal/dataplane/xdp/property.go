// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"slices"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// property is one optional property of a version of a service. Its zero
// value is a service without the property.
type property interface {
	// describe sets it from the service's specification.
	describe(svc *lb.Service)
	// needs returns the program's features that it takes, and the flags of the
	// view.
	needs() program.Features
	flags() table.BalancerViewFlag
	// stage completes it for a version with these slots, in the place of old, and
	// writes to free elements of the tables. On an error nothing is taken.
	stage(t *table.Tables, slots []slot, old property) error
	// same reports whether it is the same as old for packets.
	same(old property) bool
	// write stores it for the service of that number, in a view that is not in use,
	// in the place of old. State that all views of a service share is in effect
	// from then on.
	write(t *table.Tables, number, view uint32, old property) error
	// retire frees elements that next doesn't use, once the ticket is over. Next is
	// nil if the service is deleted.
	retire(t *table.Tables, number uint32, next property, after table.Ticket) error
	// adopt reads the property from an earlier agent's tables.
	adopt(t *table.Tables, number uint32, s *table.BalancerService, slots []slot) error
}

// properties are the optional properties of a version of a service.
type properties struct {
	forwarding  forwarding
	sharing     sharing
	sources     sources
	limits      limits
	quic        quic
	clients     clients
	recording   recording
	unavailable unavailable
	passive     passiveCheck
	lookup      peerLookup
}

// all lists them; they are written in this order.
func (p *properties) all() []property {
	return []property{
		&p.forwarding, &p.sharing, &p.sources, &p.limits, &p.quic, &p.clients, &p.recording,
		&p.unavailable, &p.passive, &p.lookup,
	}
}

// flagged is the part of properties that have nothing in the tables but a flag of
// the view or a feature of the program.
type flagged struct{}

func (flagged) needs() program.Features                             { return 0 }
func (flagged) flags() table.BalancerViewFlag                       { return 0 }
func (flagged) stage(*table.Tables, []slot, property) error         { return nil }
func (flagged) same(property) bool                                  { return true }
func (flagged) write(*table.Tables, uint32, uint32, property) error { return nil }
func (flagged) retire(*table.Tables, uint32, property, table.Ticket) error {
	return nil
}
func (flagged) adopt(*table.Tables, uint32, *table.BalancerService, []slot) error { return nil }

// when is the feature or flag of a property that is on.
func when[T ~uint16 | ~uint32](on bool, t T) T {
	if on {
		return t
	}
	return 0
}

// propertiesOf returns the optional properties of a service.
func propertiesOf(svc *lb.Service) *properties {
	p := &properties{}
	for _, one := range p.all() {
		one.describe(svc)
	}
	return p
}

// needs are the features that packets of the service need.
func (p *properties) needs() (f program.Features) {
	for _, one := range p.all() {
		f |= one.needs()
	}
	return f
}

func (p *properties) flags() (flags table.BalancerViewFlag) {
	for _, one := range p.all() {
		flags |= one.flags()
	}
	return flags
}

// each calls do with every property and its part of old, until there is an error.
func (p *properties) each(old *properties, do func(one, old property) error) error {
	before := old.all()
	for i, one := range p.all() {
		if err := do(one, before[i]); err != nil {
			return err
		}
	}
	return nil
}

// stage completes all properties of a version; after an error, retire them.
func (p *properties) stage(t *table.Tables, slots []slot, old *properties) error {
	return p.each(old, func(one, old property) error { return one.stage(t, slots, old) })
}

// slotsFreed makes properties name none of the slots that have become free.
func (p *properties) slotsFreed(slots []slot) {
	p.quic.slotsFreed(slots)
	p.lookup.find(slots)
}

func (p *properties) same(old *properties) bool {
	return slices.EqualFunc(p.all(), old.all(), property.same)
}

func (p *properties) write(t *table.Tables, number, view uint32, old *properties) error {
	return p.each(old, func(one, old property) error { return one.write(t, number, view, old) })
}

// retire frees elements that next doesn't use; nil is a deleted service.
func (p *properties) retire(t *table.Tables, number uint32, next *properties, after table.Ticket) error {
	var errs []error
	for i, one := range p.all() {
		var successor property
		if next != nil {
			successor = next.all()[i]
		}
		errs = append(errs, one.retire(t, number, successor, after))
	}
	return errors.Join(errs...)
}

func (p *properties) adopt(t *table.Tables, number uint32, s *table.BalancerService, slots []slot) error {
	return p.each(p, func(one, _ property) error { return one.adopt(t, number, s, slots) })
}

// unavailable is the answer to clients of a service without usable backends.
type unavailable struct {
	flagged
	reject bool
}

func (u *unavailable) describe(svc *lb.Service) { u.reject = svc.Unavailable == lb.Reject }

func (u *unavailable) needs() program.Features { return when(u.reject, program.FeatureReject) }

func (u *unavailable) flags() table.BalancerViewFlag {
	return when(u.reject, table.BalancerViewFlagVIEW_REJECT)
}

// recording is set if all flows of a service are recorded, not only those that a
// change of the ring may move.
type recording struct {
	flagged
	all bool
}

// describe records all flows of remembered clients, as the ring doesn't give their
// backends.
func (r *recording) describe(svc *lb.Service) {
	r.all = svc.Forward != lb.NAT && (svc.Tracking == lb.TrackingFull || clientIdle(svc) > 0)
}

func (r *recording) flags() table.BalancerViewFlag {
	return when(r.all, table.BalancerViewFlagVIEW_TRACK_ALL)
}
