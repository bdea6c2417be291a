// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
)

const (
	// maxPrefixes is how many prefixes a client may announce, accepted or not: four times
	// the services that there may be.
	maxPrefixes = 16384
	// maxAttributes is how many bytes of memory the attributes of a client's routes may take.
	maxAttributes = 2 << 20
)

// route is a client's route to a prefix.
type route struct {
	session.Learned
	// since is when it was received, or last changed.
	since time.Time
	// accepted is set if it is reflected, with the attributes passed.
	accepted bool
	passed   bgp.Attributes
	stale    bool
}

// update records a client's routes and passes them on. A notification that isn't zero ends the session.
func (r *Reflector) update(p *client, s *session.Session, u *session.Update) session.Notification {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.session != s {
		return session.Notification{} // which has ended
	}
	if u.EndOfRIB {
		p.endOfRIB = time.Now()
		r.sweep(p, func(netip.Prefix) bool { return true })
	}
	for _, prefix := range u.Withdrawn {
		r.withdraw(p, prefix)
	}
	for _, a := range u.Announced {
		learned := route{Learned: a.Learned, since: time.Now()}
		for _, prefix := range a.Prefixes {
			r.decide(p, prefix, learned)
		}
		if len(p.routes) > maxPrefixes {
			return session.TooManyPrefixes
		}
		if p.size > maxAttributes {
			return session.OutOfResources
		}
	}
	return session.Notification{}
}

// decide records a client's route to a prefix, and whether and how it is reflected.
func (r *Reflector) decide(p *client, prefix netip.Prefix, to route) {
	genuine := !p.External(r.config.Local) || len(to.ASPath) > 0 && to.ASPath[0] == p.ASN
	to.accepted = genuine && !to.Loop && r.config.Accepts(p.identity.Address, prefix, to.NextHop)
	to.passed = limited(&to.Attributes, &r.config.Allowed)
	p.size += to.Size - p.routes[prefix].Size
	p.routes[prefix] = to
	r.out.pass(prefix)
}

// withdraw removes a client's route to a prefix.
func (r *Reflector) withdraw(p *client, prefix netip.Prefix) {
	if _, ok := p.routes[prefix]; !ok {
		return
	}
	p.size -= p.routes[prefix].Size
	delete(p.routes, prefix)
	r.out.pass(prefix)
}

// sweep removes a client's stale routes to some prefixes.
func (r *Reflector) sweep(p *client, some func(netip.Prefix) bool) {
	for prefix, to := range p.routes {
		if to.stale && some(prefix) {
			r.withdraw(p, prefix)
		}
	}
}

// limited are attributes within the limits of bgp.Reflection.Allowed.
func limited(received, limits *bgp.Attributes) bgp.Attributes {
	preference := func(a *bgp.Attributes) uint32 {
		if a.LocalPreference == nil {
			return bgp.DefaultLocalPreference
		}
		return *a.LocalPreference
	}
	a := bgp.Attributes{
		LocalPreference: new(min(preference(received), preference(limits))), MED: limits.MED,
		LinkBandwidth: min(received.LinkBandwidth, limits.LinkBandwidth), GracefulShutdown: received.GracefulShutdown,
	}
	if received.MED != nil && limits.MED != nil {
		a.MED = new(max(*received.MED, *limits.MED))
	}
	for _, c := range received.Communities {
		if slices.Contains(limits.Communities, c) {
			a.Communities = append(a.Communities, c)
		}
	}
	for _, c := range received.LargeCommunities {
		if slices.Contains(limits.LargeCommunities, c) {
			a.LargeCommunities = append(a.LargeCommunities, c)
		}
	}
	return a
}

// addOut gives the session of a router all routes, and later changes until it ends.
func (r *Reflector) addOut(s *session.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.sessions[s] = struct{}{}
	all := make(map[netip.Prefix]struct{})
	for _, p := range r.clients {
		for prefix := range p.routes {
			all[prefix] = struct{}{}
		}
	}
	for prefix := range all {
		r.out.change(s, prefix, r.paths(prefix))
	}
	r.work.Go(func() {
		<-s.Ended()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.out.sessions, s)
	})
}

// outbound passes paths on to routers. The reflector's lock guards it.
type outbound struct {
	log *slog.Logger
	// sessions are the routers' that get paths.
	sessions map[*session.Session]struct{}
	// unequal are the prefixes whose paths they don't have yet; changed has a value if there are any.
	unequal map[netip.Prefix]struct{}
	changed chan struct{}
}

func newOutbound(log *slog.Logger) outbound {
	return outbound{log, make(map[*session.Session]struct{}), make(map[netip.Prefix]struct{}), make(chan struct{}, 1)}
}

// pass has the paths to a prefix passed on, by run: hundreds of clients announce the same prefixes after a restart, and each
// change of one takes all paths of the others.
func (o *outbound) pass(prefix netip.Prefix) {
	o.unequal[prefix] = struct{}{}
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// run passes changes on, some at a time, until ctx ends.
func (o *outbound) run(ctx context.Context, lock sync.Locker, paths func(netip.Prefix) []session.Path) {
	for {
		select {
		case <-o.changed:
		case <-ctx.Done():
			return
		}
		for left := 1; left > 0; {
			lock.Lock()
			o.passSome(paths)
			left = len(o.unequal)
			lock.Unlock()
		}
	}
}

func (o *outbound) passSome(paths func(netip.Prefix) []session.Path) {
	const some = 64
	done := 0
	for prefix := range o.unequal {
		if done++; done > some {
			return
		}
		delete(o.unequal, prefix)
		to := paths(prefix)
		for s := range o.sessions {
			o.change(s, prefix, to)
		}
	}
}

func (o *outbound) change(s *session.Session, prefix netip.Prefix, paths []session.Path) {
	if err := s.Change(prefix, paths); err != nil {
		o.log.Warn("route not passed on", "error", err)
	}
}

// paths are the accepted paths to a prefix, the best one first (RFC 4271 §9.1.2.2, RFC 4456 §9). An identifier is a hash of
// client and next hop, so that a router that kept the paths over a restart of the reflector mistakes none for another.
func (r *Reflector) paths(prefix netip.Prefix) (paths []session.Path) {
	for id, p := range r.clients {
		to, ok := p.routes[prefix]
		if !ok || !to.accepted {
			continue
		}
		path := session.Path{
			Route: bgp.Route{Prefix: prefix, NextHop: to.NextHop, Attributes: to.passed}, Origin: to.Origin, ASPath: to.ASPath,
		}
		if !p.External(r.config.Local) {
			path.Originator, path.Cluster = id.RouterID, r.config.ClusterID
		}
		hash := fnv.New32a()
		hash.Write(id.RouterID.AsSlice())
		hash.Write(to.NextHop.AsSlice())
		path.ID = hash.Sum32()
		paths = append(paths, path)
	}
	med := func(p *session.Path) uint32 {
		if p.MED == nil {
			return 0
		}
		return *p.MED
	}
	slices.SortFunc(paths, func(a, b session.Path) int {
		return cmp.Or(cmp.Compare(*b.LocalPreference, *a.LocalPreference), cmp.Compare(len(a.ASPath), len(b.ASPath)),
			cmp.Compare(a.Origin, b.Origin), cmp.Compare(med(&a), med(&b)), a.Originator.Compare(b.Originator),
			a.NextHop.Compare(b.NextHop), cmp.Compare(a.ID, b.ID))
	})
	return paths
}
