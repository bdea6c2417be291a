// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/osrg/gobgp/v4/api"

	"fairlead.io/fairlead/internal/bgp"
)

// Names of the library's policies and sets, which are global to a server.
const (
	takePolicy   = "take"
	passPolicy   = "pass"
	routersSet   = "routers"
	clientsSet   = "clients"
	acceptedSet4 = "accepted4"
	acceptedSet6 = "accepted6"
	// everybody is the library's name for the policies of all peers.
	everybody = "global"
)

// Reflect says which routes are taken from whom and passed on to whom, also those
// that are known already: accepted ones from clients to routers, and nothing else.
func (s *Server) Reflect(ctx context.Context, r *bgp.Reflection) error {
	request := &api.SetPoliciesRequest{
		DefinedSets: definedSets(r),
		Policies:    []*api.Policy{take(r), pass()},
	}
	if err := s.bgp.SetPolicies(ctx, request); err != nil {
		return fmt.Errorf("bgp policies: %w", err)
	}
	for name, direction := range map[string]api.PolicyDirection{
		takePolicy: api.PolicyDirection_POLICY_DIRECTION_IMPORT,
		passPolicy: api.PolicyDirection_POLICY_DIRECTION_EXPORT,
	} {
		err := s.bgp.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
			Name: everybody, Direction: direction, Policies: []*api.Policy{{Name: name}},
			DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
		}})
		if err != nil {
			return fmt.Errorf("bgp policy %s: %w", name, err)
		}
	}
	return nil
}

// Reconsider judges anew what the client of that key has announced, by the
// policies of Reflect.
func (s *Server) Reconsider(ctx context.Context, key netip.Addr) error {
	err := s.bgp.ResetPeer(ctx, &api.ResetPeerRequest{
		Address: key.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_IN,
	})
	if err != nil {
		return fmt.Errorf("peer %s: %w", key, err)
	}
	return nil
}

func definedSets(r *bgp.Reflection) []*api.DefinedSet {
	var routers []string
	for _, p := range r.Routers {
		routers = append(routers, netip.PrefixFrom(p.Address, p.Address.BitLen()).String())
	}
	clients := []string{clientKeys.String()}
	return []*api.DefinedSet{
		{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: routersSet, List: routers},
		{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: clientsSet, List: clients},
		acceptedSet(acceptedSet4, r.Accept, netip.Addr.Is4),
		acceptedSet(acceptedSet6, r.Accept, netip.Addr.Is6),
	}
}

// acceptedSet has the prefixes of one family that clients may announce.
func acceptedSet(name string, accept []bgp.Acceptance, family func(netip.Addr) bool) *api.DefinedSet {
	set := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_PREFIX, Name: name}
	for _, a := range accept {
		if family(a.Prefix.Addr()) {
			set.Prefixes = append(set.Prefixes, &api.Prefix{
				IpPrefix:      a.Prefix.String(),
				MaskLengthMin: uint32(a.Shortest),
				MaskLengthMax: uint32(a.Prefix.Addr().BitLen()),
			})
		}
	}
	return set
}

// take is the policy of what comes in: nothing from routers, and from clients what
// is accepted.
func take(r *bgp.Reflection) *api.Policy {
	policy := &api.Policy{Name: takePolicy, Statements: []*api.Statement{{
		Name:       "from-routers",
		Conditions: &api.Conditions{NeighborSet: anyOf(routersSet)},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT},
	}}}
	var nextHops []string
	for _, p := range r.NextHops {
		nextHops = append(nextHops, p.String())
	}
	for _, set := range []string{acceptedSet4, acceptedSet6} {
		policy.Statements = append(policy.Statements, &api.Statement{
			Name:       set,
			Conditions: &api.Conditions{NeighborSet: anyOf(clientsSet), PrefixSet: anyOf(set), NextHopInList: nextHops},
			Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
		})
	}
	return policy
}

// pass is the policy of what goes out: everything to routers, with the next hops
// that clients named, also over eBGP.
func pass() *api.Policy {
	return &api.Policy{Name: passPolicy, Statements: []*api.Statement{{
		Name:       "to-routers",
		Conditions: &api.Conditions{NeighborSet: anyOf(routersSet)},
		Actions: &api.Actions{
			RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT,
			Nexthop:     &api.NexthopAction{Unchanged: true},
		},
	}}}
}

func anyOf(set string) *api.MatchSet {
	return &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: set}
}

// Leave ends the server without a word to peers that keep routes over a restart.
// The library first takes back from routers what clients announced: who calls it
// has closed their connections.
func (s *Server) Leave(ctx context.Context) error {
	if err := s.bgp.StopBgp(ctx, &api.StopBgpRequest{AllowGracefulRestart: true}); err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	return nil
}
