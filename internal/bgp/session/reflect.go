// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

const (
	// maxPaths is how many paths to a prefix a router gets at most.
	maxPaths = 255
	// maxPrefixes is how many prefixes a client may announce, accepted or not: four times
	// the services that there may be.
	maxPrefixes = 16384
	// maxAttributes is how many bytes of attributes the routes of a client may have in all,
	// as they are in messages; a route counts those that reevaluable returns.
	maxAttributes = 2 << 20
)

// Reflect makes the instance pass the clients' routes on to routers, and nothing else:
// UPDATEs of routers don't reach it.
func (i *Instance) Reflect(ctx context.Context) error {
	const routers, allPeers = "routers", "global" // the latter is the library's name for the policies of all peers
	policy := &api.Policy{Name: routers, Statements: []*api.Statement{{
		Name:       routers,
		Conditions: &api.Conditions{NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: routers}},
		Actions: &api.Actions{
			RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT,
			Nexthop:     &api.NexthopAction{Unchanged: true}, // over eBGP, too
		},
	}}}
	err := i.lib.SetPolicies(ctx, &api.SetPoliciesRequest{
		DefinedSets: []*api.DefinedSet{
			{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: routers, List: []string{routerKeys.String()}},
		},
		Policies: []*api.Policy{policy},
	})
	if err != nil {
		return fmt.Errorf("bgp policies: %w", err)
	}
	err = i.lib.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: allPeers, Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT, Policies: []*api.Policy{{Name: routers}},
		DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
	if err != nil {
		return fmt.Errorf("bgp policy %s: %w", routers, err)
	}
	return nil
}

// AddClient adds a client of a reflector. The library's own dynamic neighbours can't
// be counted, have no passwords of their range, can't share an address, and can't
// connect in the seconds after a loss.
func (i *Instance) AddClient(ctx context.Context, r *bgp.Reflection, client *bgp.Peer) (key netip.Addr, err error) {
	key = newKey(clientKeys)
	config := apiPeer(&r.Local, client, key)
	config.RouteReflector = reflectorClient(r, client)
	if err := i.lib.AddPeer(ctx, &api.AddPeerRequest{Peer: config}); err != nil {
		return netip.Addr{}, fmt.Errorf("bgp: %w", err)
	}
	return key, nil
}

// reflectorClient marks internal clients and routers alike: the library sends
// ORIGINATOR_ID and CLUSTER_LIST (RFC 4456 §8) to clients only.
func reflectorClient(r *bgp.Reflection, p *bgp.Peer) *api.RouteReflector {
	if p.External(r.Local) {
		return nil
	}
	return &api.RouteReflector{RouteReflectorClient: true, RouteReflectorClusterId: r.ClusterID.String()}
}

// BeginClient begins the session of an active client over a connection, which it
// takes over.
func (i *Instance) BeginClient(ctx context.Context, r *bgp.Reflection, key netip.Addr, client *bgp.Peer, conn *Pending) (*Session, error) {
	s := newSession(conn, r.Local, *client)
	s.client, s.key = true, key
	s.reflection.Store(new(*r))
	return s, i.connect(ctx, s)
}

// BeginRouter begins the session of a router, which gets several paths to each prefix
// (RFC 7911), over a connection, which it takes over.
func (i *Instance) BeginRouter(ctx context.Context, r *bgp.Reflection, router *bgp.Peer, conn *Pending, restarted bool) (*Session, error) {
	s := newSession(conn, r.Local, *router)
	s.restarted = restarted
	s.updates.repeat = func() {
		out := &api.ResetPeerRequest{Address: s.key.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT}
		_ = i.lib.ResetPeer(context.Background(), out) // fails if the router is gone by then
	}
	config := apiPeer(&r.Local, router, s.key)
	config.RouteReflector = reflectorClient(r, router)
	config.GracefulRestart = &api.GracefulRestart{
		Enabled: true, RestartTime: uint32(router.RestartTime / time.Second), DeferralTime: deferral,
	}
	for _, family := range config.AfiSafis {
		family.MpGracefulRestart.Config.Enabled = true
		family.AddPaths = &api.AddPaths{Config: &api.AddPathsConfig{SendMax: maxPaths}}
	}
	return s, i.begin(ctx, s, config)
}

// ReceivedRoute is a route that a client announces.
type ReceivedRoute struct {
	NextHop netip.Addr
	// Since is when it was received, or last changed.
	Since time.Time
	// Accepted is set if it is passed on, with Attributes.
	Accepted   bool
	Attributes bgp.Attributes

	// received has the attributes that Accepted and Attributes depend on, and size their
	// bytes in a message.
	received []wire.PathAttributeInterface
	size     int
}

// AdjRIBIn returns the client's routes, accepted or not. The library's own
// table can't be read while it changes.
func (s *Session) AdjRIBIn() map[netip.Prefix]ReceivedRoute {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.adjRIBIn)
}

// Reevaluate applies another configuration to a client's routes. It doesn't wait for that.
func (s *Session) Reevaluate(r *bgp.Reflection) {
	s.reflection.Store(new(*r))
	go func() {
		s.passing.Lock()
		defer s.passing.Unlock()
		for prefix, route := range s.AdjRIBIn() {
			nlri, err := wire.NewIPAddrPrefix(prefix)
			if err == nil {
				err = s.pass([]wire.PathNLRI{{NLRI: nlri}}, route)
			}
			if err != nil {
				return // the session has ended
			}
		}
	}()
}

// receivedUpdate passes on a client's routes.
func (s *Session) receivedUpdate(update *wire.BGPUpdate) error {
	s.passing.Lock()
	defer s.passing.Unlock()
	err := s.withdraw(update.WithdrawnRoutes)
	route := ReceivedRoute{Since: time.Now()}
	route.received, route.size = reevaluable(update.PathAttributes)
	for _, a := range update.PathAttributes {
		switch a := a.(type) {
		case *wire.PathAttributeNextHop:
			route.NextHop = a.Value
		case *wire.PathAttributeMpUnreachNLRI:
			err = errors.Join(err, s.withdraw(a.Value))
		}
	}
	err = errors.Join(err, s.pass(update.NLRI, route))
	for _, a := range update.PathAttributes {
		if a, ok := a.(*wire.PathAttributeMpReachNLRI); ok {
			route.NextHop = a.Nexthop
			err = errors.Join(err, s.pass(a.Value, route))
		}
	}
	return err
}

// withdraw removes a client's paths, which are of one family.
func (s *Session) withdraw(paths []wire.PathNLRI) error {
	s.mu.Lock()
	for _, n := range paths {
		prefix := prefixOf(n.NLRI)
		s.attributes -= s.adjRIBIn[prefix].size
		delete(s.adjRIBIn, prefix)
	}
	s.mu.Unlock()
	messages, err := withdrawals(paths, s.options(false))
	if err == nil {
		_, err = s.library.Write(slices.Concat(messages...))
	}
	return err
}

// pass records a route to a client's paths, which are of one family. It passes those on that
// are accepted, with the attributes that clients may set, and withdraws the others.
func (s *Session) pass(paths []wire.PathNLRI, route ReceivedRoute) error {
	if route.NextHop.IsLoopback() { // which the library accepts from peers on loopback
		return s.refuse(badNextHop)
	}
	r := s.reflection.Load()
	genuine := !s.config.External(s.local) || firstASN(route.received) == s.config.ASN
	route.Attributes = allowed(route.received, &r.Allowed)
	var accepted, others []wire.PathNLRI
	s.mu.Lock()
	for _, n := range paths {
		prefix := prefixOf(n.NLRI)
		if route.Accepted = genuine && r.Accepts(s.config.Address, prefix, route.NextHop); route.Accepted {
			accepted = append(accepted, n)
		} else {
			others = append(others, n)
		}
		s.attributes += route.size - s.adjRIBIn[prefix].size
		s.adjRIBIn[prefix] = route
	}
	number, size := len(s.adjRIBIn), s.attributes
	s.mu.Unlock()
	if number > maxPrefixes {
		return s.refuse(tooManyPrefixes)
	}
	if size > maxAttributes {
		return s.refuse(outOfResources)
	}
	messages, err := withdrawals(others, s.options(false))
	if err != nil {
		return err
	}
	if len(accepted) > 0 {
		message, err := s.announcement(accepted, &route)
		if err != nil {
			return err
		}
		messages = append(messages, message)
	}
	_, err = s.library.Write(slices.Concat(messages...))
	return err
}

// announcement is an UPDATE with a client's paths of one family.
func (s *Session) announcement(paths []wire.PathNLRI, route *ReceivedRoute) ([]byte, error) {
	hop, err := newNextHop(paths, route.NextHop)
	if err != nil {
		return nil, err
	}
	attrs := append(transitive(&route.Attributes, s.local.ASN), hop)
	for _, a := range route.received {
		switch a.(type) {
		case *wire.PathAttributeOrigin, *wire.PathAttributeAsPath, *wire.PathAttributeAs4Path:
			attrs = append(attrs, a)
		}
	}
	if route.Attributes.MED != nil {
		attrs = append(attrs, wire.NewPathAttributeMultiExitDisc(*route.Attributes.MED))
	}
	if !s.config.External(s.local) {
		attrs = append(attrs, wire.NewPathAttributeLocalPref(*route.Attributes.LocalPreference))
	}
	if hop.GetType() == wire.BGP_ATTR_TYPE_MP_REACH_NLRI {
		paths = nil // they are in it
	}
	return wire.NewBGPUpdateMessage(nil, attrs, paths).Serialize(s.options(false))
}

// firstASN is the ASN that an AS_PATH begins with; 0 if there is none.
func firstASN(attrs []wire.PathAttributeInterface) uint32 {
	for _, a := range attrs {
		if path, ok := a.(*wire.PathAttributeAsPath); ok && len(path.Value) > 0 && len(path.Value[0].GetAS()) > 0 {
			return path.Value[0].GetAS()[0]
		}
	}
	return 0
}

// reevaluable returns the received attributes that announcement, firstASN or allowed read,
// which the session keeps for another configuration, and their size in bytes.
func reevaluable(received []wire.PathAttributeInterface) (kept []wire.PathAttributeInterface, size int) {
	for _, a := range received {
		switch attr := a.(type) {
		case *wire.PathAttributeOrigin, *wire.PathAttributeAsPath, *wire.PathAttributeAs4Path,
			*wire.PathAttributeLocalPref, *wire.PathAttributeMultiExitDisc,
			*wire.PathAttributeCommunities, *wire.PathAttributeLargeCommunities:
		case *wire.PathAttributeExtendedCommunities:
			var bandwidth []wire.ExtendedCommunityInterface
			for _, c := range attr.Value {
				if _, ok := c.(*wire.LinkBandwidthExtended); ok {
					bandwidth = []wire.ExtendedCommunityInterface{c} // the last one counts
				}
			}
			a = wire.NewPathAttributeExtendedCommunities(bandwidth)
		default:
			continue
		}
		kept = append(kept, a)
		size += a.Len()
	}
	return kept, size
}

// allowed are received attributes within the limits of bgp.Reflection.Allowed.
func allowed(received []wire.PathAttributeInterface, limits *bgp.Attributes) bgp.Attributes {
	preference, greatest := uint32(bgp.DefaultLocalPreference), uint32(bgp.DefaultLocalPreference)
	if limits.LocalPreference != nil {
		greatest = *limits.LocalPreference
	}
	a := bgp.Attributes{MED: limits.MED}
	for _, attr := range received {
		switch attr := attr.(type) {
		case *wire.PathAttributeLocalPref:
			preference = attr.Value
		case *wire.PathAttributeMultiExitDisc:
			if limits.MED != nil {
				a.MED = new(max(attr.Value, *limits.MED))
			}
		case *wire.PathAttributeCommunities:
			for _, c := range attr.Value {
				c := bgp.Community(c)
				a.GracefulShutdown = a.GracefulShutdown || c == bgp.GracefulShutdown
				if slices.Contains(limits.Communities, c) && !slices.Contains(a.Communities, c) {
					a.Communities = append(a.Communities, c)
				}
			}
		case *wire.PathAttributeLargeCommunities:
			for _, c := range attr.Values {
				c := bgp.LargeCommunity{c.ASN, c.LocalData1, c.LocalData2}
				if slices.Contains(limits.LargeCommunities, c) && !slices.Contains(a.LargeCommunities, c) {
					a.LargeCommunities = append(a.LargeCommunities, c)
				}
			}
		case *wire.PathAttributeExtendedCommunities:
			for _, c := range attr.Value {
				if c, ok := c.(*wire.LinkBandwidthExtended); ok {
					a.LinkBandwidth = min(c.Bandwidth, limits.LinkBandwidth)
				}
			}
		}
	}
	a.LocalPreference = new(min(preference, greatest))
	return a
}
