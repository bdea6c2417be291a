// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"context"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/netlab/operator"
)

const (
	// lossPatience is how long the router may take to learn that a balancer is
	// lost, or back: longer than any hold time.
	lossPatience = 15 * time.Second
	// around is how long the load lasts before and after a balancer is lost: every
	// client speaks at least once in it.
	around = 2 * time.Second
)

// loseBalancer takes the wire of the last balancer away. It returns when the
// router sends nothing there any more.
func (s *site) loseBalancer(ctx context.Context) error {
	lost := s.balancers[len(s.balancers)-1]
	if err := s.Cut(lost); err != nil {
		return err
	}
	s.balancers = s.balancers[:len(s.balancers)-1]
	return s.awaitRoutes(ctx)
}

// recoverBalancer gives a lost balancer its wire back and returns when all is as
// it was.
func (s *site) recoverBalancer(ctx context.Context) error {
	var lost string
	for _, h := range s.topology.Hosts {
		if h.Role == netlab.Balancer && !slices.Contains(s.balancers, h.Name) {
			lost = h.Name
		}
	}
	if err := s.Mend(lost); err != nil {
		return err
	}
	s.balancers = append(s.balancers, lost)
	return s.awaitRoutes(ctx)
}

// awaitRoutes waits until the router spreads the VIPs over just the balancers that
// are there, and will notice at once if one goes.
func (s *site) awaitRoutes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lossPatience)
	defer cancel()
	for _, route := range s.topology.Learned {
		route.Via = s.balancers
		if err := s.AwaitRoute(ctx, route); err != nil {
			return err
		}
	}
	var sockets []string
	state := s.State()
	for _, name := range s.balancers {
		sockets = append(sockets, state.Host(name).Socket)
	}
	return operator.AwaitSessions(ctx, sockets, true)
}

// loseQuietly has no backend change while the last balancer is lost.
func (p *phase) loseQuietly(ctx context.Context) error {
	for _, step := range []func() error{
		func() error { return bench.Sleep(ctx, around) },
		func() error { return p.site.loseBalancer(ctx) },
		func() error { return bench.Sleep(ctx, around) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
