// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

const (
	// maxPaths is how many paths to a prefix a router gets at most.
	maxPaths = 255
	// maxPrefixes is how many prefixes of a family a client may announce, accepted or
	// not: twice the services that there may be.
	maxPrefixes = 8192
)

// Names of the library's policies, sets and statements, which an instance has once.
const (
	importPolicy = "import"
	exportPolicy = "export"
	routersSet   = "routers"
	// allPeers is the library's name for the policies of all peers.
	allPeers = "global"
)

// Reflect makes the instance pass the clients' accepted routes on to routers, and
// nothing else: UPDATEs of routers don't reach it. It applies to known routes, too, with
// Reevaluate.
func (i *Instance) Reflect(ctx context.Context, r *bgp.Reflection) error {
	accept := &api.Policy{Name: importPolicy}
	reflect := &api.Policy{Name: exportPolicy, Statements: []*api.Statement{{
		Name:       routersSet,
		Conditions: &api.Conditions{NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: routersSet}},
		Actions: &api.Actions{
			RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT,
			Nexthop:     &api.NexthopAction{Unchanged: true}, // over eBGP, too
		},
	}}}
	request := &api.SetPoliciesRequest{
		DefinedSets: []*api.DefinedSet{
			{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: routersSet, List: []string{routerKeys.String()}},
		},
		Policies: []*api.Policy{accept, reflect},
	}
	var nextHops []string
	for _, p := range r.NextHops {
		nextHops = append(nextHops, p.String())
	}
	for family, prefixes := range acceptedPrefixes(r.Accept) {
		request.DefinedSets = append(request.DefinedSets,
			&api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_PREFIX, Name: family.String(), Prefixes: prefixes})
		accept.Statements = append(accept.Statements, &api.Statement{
			Name: family.String(),
			Conditions: &api.Conditions{
				PrefixSet:     &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: family.String()},
				NextHopInList: nextHops,
			},
			Actions: &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
		})
	}
	if err := i.lib.SetPolicies(ctx, request); err != nil {
		return fmt.Errorf("bgp policies: %w", err)
	}
	for name, direction := range map[string]api.PolicyDirection{
		importPolicy: api.PolicyDirection_POLICY_DIRECTION_IMPORT,
		exportPolicy: api.PolicyDirection_POLICY_DIRECTION_EXPORT,
	} {
		err := i.lib.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
			Name: allPeers, Direction: direction, Policies: []*api.Policy{{Name: name}},
			DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
		}})
		if err != nil {
			return fmt.Errorf("bgp policy %s: %w", name, err)
		}
	}
	return nil
}

// acceptedPrefixes are the prefixes that clients may announce, by family: a set of the
// library has only one.
func acceptedPrefixes(accept []bgp.Acceptance) map[wire.Family][]*api.Prefix {
	prefixes := make(map[wire.Family][]*api.Prefix)
	for _, a := range accept {
		family := familyOf(a.Prefix)
		prefixes[family] = append(prefixes[family], &api.Prefix{
			IpPrefix:      a.Prefix.String(),
			MaskLengthMin: uint32(a.Shortest),
			MaskLengthMax: uint32(a.Prefix.Addr().BitLen()),
		})
	}
	return prefixes
}

// Reevaluate applies the policies of Reflect to a client's known routes.
func (i *Instance) Reevaluate(ctx context.Context, key netip.Addr) error {
	in := &api.ResetPeerRequest{Address: key.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_IN}
	if err := i.lib.ResetPeer(ctx, in); err != nil {
		return fmt.Errorf("bgp: %w", err)
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
	for _, family := range config.AfiSafis {
		family.PrefixLimits = &api.PrefixLimit{Family: family.Config.Family, MaxPrefixes: maxPrefixes}
	}
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
	// Attributes are for operators: "65021:100", "local-pref 200", "med 10".
	Attributes []string
}

// AdjRIBIn returns what the client announces, accepted or not. The library's own
// table can't be read while it changes.
func (s *Session) AdjRIBIn() map[netip.Prefix]ReceivedRoute {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.adjRIBIn)
}

// receivedUpdate records a client's routes. The library ends the session of one that
// announces too many.
func (s *Session) receivedUpdate(update *wire.BGPUpdate) error {
	withdrawn, announced := pathsOf(update)
	route := ReceivedRoute{
		NextHop: nextHopOf(update.PathAttributes), Since: time.Now(), Attributes: describeAttributes(update.PathAttributes),
	}
	if route.NextHop.IsLoopback() { // which the library accepts from peers on loopback
		return s.refuse(badNextHop)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range withdrawn {
		delete(s.adjRIBIn, prefixOf(n.NLRI))
	}
	for _, n := range announced {
		if len(s.adjRIBIn) <= 2*maxPrefixes {
			s.adjRIBIn[prefixOf(n.NLRI)] = route
		}
	}
	return nil
}

// describeAttributes returns the attributes that an operator configures.
func describeAttributes(attrs []wire.PathAttributeInterface) (texts []string) {
	for _, a := range attrs {
		switch a := a.(type) {
		case *wire.PathAttributeCommunities:
			for _, c := range a.Value {
				texts = append(texts, bgp.Community(c).String())
			}
		case *wire.PathAttributeLargeCommunities:
			for _, c := range a.Values {
				texts = append(texts, c.String())
			}
		case *wire.PathAttributeExtendedCommunities:
			for _, c := range a.Value {
				texts = append(texts, strings.ToLower(c.String()))
			}
		case *wire.PathAttributeLocalPref:
			texts = append(texts, fmt.Sprintf("local-pref %d", a.Value))
		case *wire.PathAttributeMultiExitDisc:
			texts = append(texts, fmt.Sprintf("med %d", a.Value))
		}
	}
	return texts
}
