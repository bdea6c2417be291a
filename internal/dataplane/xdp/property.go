// SPDX-License-Identifier: Apache-2.0

package xdp

import (
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
	// option sets it in the options of a version with these slots. The options of the version
	// before never change.
	option(o *table.Options, slots []slot, before *table.Options)
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

// all lists them.
func (p *properties) all() []property {
	return []property{
		&p.forwarding, &p.sharing, &p.sources, &p.limits, &p.quic, &p.clients, &p.recording,
		&p.unavailable, &p.passive, &p.lookup,
	}
}

// flagged is the part of properties that have nothing but a flag of the view or a feature of
// the program, or not even that.
type flagged struct{}

func (flagged) needs() program.Features                       { return 0 }
func (flagged) flags() table.BalancerViewFlag                 { return 0 }
func (flagged) option(*table.Options, []slot, *table.Options) {}

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

// options returns the options of a version with these slots, after a version with others.
func (p *properties) options(slots []slot, before *table.Options) table.Options {
	var o table.Options
	for _, one := range p.all() {
		one.option(&o, slots, before)
	}
	return o
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
