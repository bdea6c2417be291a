// SPDX-License-Identifier: Apache-2.0

package podroute

import (
	"context"
	"slices"

	"fairlead.io/fairlead/internal/bgp"
)

// setter is the part of a speaker that sets routes.
type setter interface {
	Set(routes []bgp.Route) error
}

// FullSpeaker is a node's speaker, as the agent uses it.
type FullSpeaker interface {
	setter
	Configure(ctx context.Context, peers []bgp.Peer) error
	Peers() []bgp.PeerState
	Close(ctx context.Context) error
	Abandon()
}

// Speaker announces the node's own routes and balancer pods' routes.
type Speaker struct {
	FullSpeaker
	router *Router
}

// Announce returns a speaker for the node's own routes, which announces pods' routes by
// the same sessions. It is called before Run.
func (r *Router) Announce(by FullSpeaker) Speaker {
	r.inner = by
	return Speaker{by, r}
}

// Set makes routes, sorted by prefix, the node's own ones. Sessions with peers begin when
// the routes of pods are known too.
func (s Speaker) Set(routes []bgp.Route) error {
	s.router.mu.Lock()
	defer s.router.mu.Unlock()
	s.router.own, s.router.ownSet = routes, true
	return s.router.set()
}

// announce replaces the pods' routes, sorted by prefix.
func (r *Router) announce(routes []bgp.Route) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logChanges(routes)
	r.announced = slices.Clone(routes)
	if r.announced == nil {
		r.announced = []bgp.Route{}
	}
	return r.set()
}

// set sets all routes of the inner speaker, once both kinds are known.
func (r *Router) set() error {
	if r.inner == nil || !r.ownSet || r.announced == nil {
		return nil
	}
	return r.inner.Set(merge(r.own, r.announced))
}

// merge returns all routes, sorted by prefix. A prefix of the node's own services is theirs.
func merge(own, pods []bgp.Route) []bgp.Route {
	all := slices.Clone(own)
	for _, p := range pods {
		i, found := slices.BinarySearchFunc(all, p, func(a, b bgp.Route) int { return a.Prefix.Compare(b.Prefix) })
		if !found {
			all = slices.Insert(all, i, p)
		}
	}
	return all
}

// logChanges logs new and withdrawn announcements.
func (r *Router) logChanges(routes []bgp.Route) {
	for i := range routes {
		if !slices.ContainsFunc(r.announced, func(a bgp.Route) bool { return a.Equal(&routes[i]) }) {
			r.Log.Info("prefix of balancer pods announced", "prefix", routes[i].Prefix, "gracefulShutdown", routes[i].GracefulShutdown)
		}
	}
	for _, was := range r.announced {
		if !slices.ContainsFunc(routes, func(a bgp.Route) bool { return a.Prefix == was.Prefix }) {
			r.Log.Info("prefix of balancer pods withdrawn", "prefix", was.Prefix)
		}
	}
}
