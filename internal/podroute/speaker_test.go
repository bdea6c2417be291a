// SPDX-License-Identifier: Apache-2.0

package podroute

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
)

// recorded is a speaker that records its routes.
type recorded struct {
	FullSpeaker
	routes []string
	sets   int
	err    error
}

func (s *recorded) Set(routes []bgp.Route) error {
	s.routes = nil
	for _, r := range routes {
		s.routes = append(s.routes, fmt.Sprint(r.Prefix, " ", r.NextHop.IsValid()))
	}
	s.sets++
	return s.err
}

func routes(prefixes ...string) (all []bgp.Route) {
	for _, p := range prefixes {
		all = append(all, bgp.Route{Prefix: netip.MustParsePrefix(p)})
	}
	return all
}

// Sessions begin when both kinds of routes are known; a prefix of the node's own is its own.
func TestSpeaker(t *testing.T) {
	r := &Router{Options: Options{Log: slog.New(slog.DiscardHandler)}}
	inner := &recorded{}
	s := r.Announce(inner)
	own := routes("10.1.1.0/24", "203.0.113.1/32")
	own[0].NextHop = netip.MustParseAddr("10.0.0.106")
	if err := s.Set(own); err != nil || inner.sets != 0 {
		t.Errorf("set %d times before pods are known, error %v", inner.sets, err)
	}
	if err := r.announce(nil); err != nil || fmt.Sprint(inner.routes) != "[10.1.1.0/24 true 203.0.113.1/32 false]" {
		t.Errorf("%q, error %v", inner.routes, err)
	}
	if err := r.announce(routes("10.1.1.0/24", "10.1.2.0/24", "fd00::/64")); err != nil ||
		fmt.Sprint(inner.routes) != "[10.1.1.0/24 true 10.1.2.0/24 false 203.0.113.1/32 false fd00::/64 false]" {
		t.Errorf("%q, error %v", inner.routes, err)
	}
	inner.err = errors.New("closed")
	if err := s.Set(nil); !errors.Is(err, inner.err) || fmt.Sprint(inner.routes) != "[10.1.1.0/24 false 10.1.2.0/24 false fd00::/64 false]" {
		t.Errorf("%q, error %v", inner.routes, err)
	}
}
