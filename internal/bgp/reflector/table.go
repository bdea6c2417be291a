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

// adjRIBIn has the routes of a client (RFC 4271 §3.2).
type adjRIBIn struct {
	identity
	asn    uint32
	routes map[netip.Prefix]route
	size   int // of the memory of their attributes
}

// table has the routes of all clients, and passes them on to routers. The reflector's lock guards it and its clients; only
// run takes the lock itself.
type table struct {
	log     *slog.Logger
	config  *bgp.Reflection // the reflector's
	clients map[identity]*adjRIBIn
	// sessions are the routers' that get paths.
	sessions map[*session.Session]struct{}
	// unequal are the prefixes whose paths they don't have yet; changed has a value if there are any.
	unequal map[netip.Prefix]struct{}
	changed chan struct{}
}

func newTable(log *slog.Logger, config *bgp.Reflection) *table {
	return &table{
		log: log, config: config, clients: make(map[identity]*adjRIBIn), sessions: make(map[*session.Session]struct{}),
		unequal: make(map[netip.Prefix]struct{}), changed: make(chan struct{}, 1),
	}
}

// add adds a client without routes.
func (t *table) add(id identity, asn uint32) *adjRIBIn {
	in := &adjRIBIn{identity: id, asn: asn, routes: make(map[netip.Prefix]route)}
	t.clients[id] = in
	return in
}

// remove removes a client and its routes.
func (t *table) remove(in *adjRIBIn) {
	delete(t.clients, in.identity)
	for prefix := range in.routes {
		t.withdraw(in, prefix)
	}
}

// update records a client's routes and passes them on. A notification that isn't zero is to end its session.
func (t *table) update(in *adjRIBIn, u *session.Update) session.Notification {
	if u.EndOfRIB != (session.Families{}) {
		t.sweep(in, func(prefix netip.Prefix) bool { return u.EndOfRIB.Has(prefix.Addr()) })
	}
	for _, prefix := range u.Withdrawn {
		t.withdraw(in, prefix)
	}
	for _, a := range u.Announced {
		learned := route{Learned: a.Learned, since: time.Now()}
		for _, prefix := range a.Prefixes {
			t.decide(in, prefix, learned)
		}
		if len(in.routes) > maxPrefixes {
			return session.TooManyPrefixes
		}
		if in.size > maxAttributes {
			return session.OutOfResources
		}
	}
	return session.Notification{}
}

// decide records a client's route to a prefix, and whether and how it is reflected.
func (t *table) decide(in *adjRIBIn, prefix netip.Prefix, to route) {
	genuine := in.asn == t.config.ASN || len(to.ASPath) > 0 && to.ASPath[0] == in.asn
	to.accepted = genuine && !to.Loop && t.config.Accepts(in.Address, prefix, to.NextHop)
	to.passed = limited(&to.Attributes, &t.config.Allowed)
	in.size += to.Size - in.routes[prefix].Size
	in.routes[prefix] = to
	t.pass(prefix)
}

// withdraw removes a client's route to a prefix.
func (t *table) withdraw(in *adjRIBIn, prefix netip.Prefix) {
	if _, ok := in.routes[prefix]; !ok {
		return
	}
	in.size -= in.routes[prefix].Size
	delete(in.routes, prefix)
	t.pass(prefix)
}

// sweep removes a client's stale routes to some prefixes.
func (t *table) sweep(in *adjRIBIn, some func(netip.Prefix) bool) {
	for prefix, to := range in.routes {
		if to.stale && some(prefix) {
			t.withdraw(in, prefix)
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

// addSession gives the session of a router all routes, and later changes.
func (t *table) addSession(s *session.Session) {
	t.sessions[s] = struct{}{}
	all := make(map[netip.Prefix]struct{})
	for _, in := range t.clients {
		for prefix := range in.routes {
			all[prefix] = struct{}{}
		}
	}
	for prefix := range all {
		t.change(s, prefix, t.paths(prefix))
	}
}

// pass has the paths to a prefix passed on, by run: hundreds of clients announce the same prefixes after a restart, and each
// change of one takes all paths of the others.
func (t *table) pass(prefix netip.Prefix) {
	t.unequal[prefix] = struct{}{}
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// run passes changes on, some at a time, until ctx ends.
func (t *table) run(ctx context.Context, lock sync.Locker) {
	for {
		select {
		case <-t.changed:
		case <-ctx.Done():
			return
		}
		for left := 1; left > 0; {
			lock.Lock()
			t.passSome()
			left = len(t.unequal)
			lock.Unlock()
		}
	}
}

func (t *table) passSome() {
	const some = 64
	done := 0
	for prefix := range t.unequal {
		if done++; done > some {
			return
		}
		delete(t.unequal, prefix)
		to := t.paths(prefix)
		for s := range t.sessions {
			t.change(s, prefix, to)
		}
	}
}

func (t *table) change(s *session.Session, prefix netip.Prefix, paths []session.Path) {
	if err := s.Change(prefix, paths); err != nil {
		t.log.Warn("route not passed on", "error", err)
	}
}

// paths are the accepted paths to a prefix, the best one first (RFC 4271 §9.1.2.2, RFC 4456 §9). An identifier is a hash of
// client and next hop, so that a router that kept the paths over a restart of the reflector mistakes none for another.
func (t *table) paths(prefix netip.Prefix) (paths []session.Path) {
	for id, in := range t.clients {
		to, ok := in.routes[prefix]
		if !ok || !to.accepted {
			continue
		}
		path := session.Path{
			Route: bgp.Route{Prefix: prefix, NextHop: to.NextHop, Attributes: to.passed}, Origin: to.Origin, ASPath: to.ASPath,
		}
		if in.asn == t.config.ASN {
			path.Originator, path.Cluster = id.RouterID, t.config.ClusterID
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
