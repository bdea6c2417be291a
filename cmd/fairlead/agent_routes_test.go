// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
)

const routedConfig = `bgp:
  asn: 65021
  routerID: 10.0.2.11
  shutdownDelay: 50ms
  peers:
    - {address: 10.0.2.1, asn: 65000}
    - {address: "fd00:2::1", asn: 65000}
  announce:
    - {prefixes: [10.1.0.0/16], communities: ["65021:100", "65021:1:2"], med: 0, prepend: 2, linkBandwidth: 2.5G, localPreference: 200}
` + testConfig

// testSpeaker records the routes that it is given, and the state of the data plane then.
type testSpeaker struct {
	mu    sync.Mutex
	lines []string
	peers []bgp.Peer
	// look describes the data plane.
	look func() string
}

func (s *testSpeaker) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.look != nil {
		line += s.look()
	}
	s.lines = append(s.lines, line)
}

// mark adds a word to records while a text is in where.
func (s *testSpeaker) mark(word string, where func() string, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look = func() string {
		if strings.Contains(where(), text) {
			return " (" + word + ")"
		}
		return ""
	}
}

func (s *testSpeaker) Set(routes []bgp.Route) error {
	line := "set"
	for _, r := range routes {
		line += " " + r.Prefix.String()
		if r.GracefulShutdown {
			line += " leaving"
		}
	}
	s.note(line)
	return nil
}

func (s *testSpeaker) Configure(_ context.Context, peers []bgp.Peer) error {
	s.mu.Lock()
	s.peers = peers
	s.mu.Unlock()
	s.note("configure")
	return nil
}

// Peers has sessions with the IPv4 ones only.
func (s *testSpeaker) Peers() []bgp.PeerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	var states []bgp.PeerState
	for _, p := range s.peers {
		state := bgp.PeerState{Address: p.Address, ASN: p.ASN, State: bgp.Idle}
		if p.Address.Is4() {
			state.State = bgp.Established
		}
		states = append(states, state)
	}
	return states
}

func (s *testSpeaker) Close(context.Context) error {
	s.note("close")
	return nil
}

func (s *testSpeaker) Abandon() { s.note("abandon") }

// said returns the recorded routes.
func (s *testSpeaker) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// await waits until the recorded routes are exactly these.
func (s *testSpeaker) await(t *testing.T, want ...string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("said: %q", s.said())
		}
	}()
	until(t, "the speaker has "+strings.Join(want, ", "), func() bool { return slices.Equal(s.said(), want) })
}

// startRouted runs an agent that announces its VIP.
func startRouted(t *testing.T) (*testAgent, *testSpeaker) {
	t.Helper()
	a, s, attach := launchRouted(t)
	close(attach)
	s.await(t, "configure", "set 10.1.1.1/32")
	return a, s
}

// launchRouted runs the agent, which is ready when attach is closed.
func launchRouted(t *testing.T) (a *testAgent, s *testSpeaker, attach chan struct{}) {
	t.Helper()
	s, attach = &testSpeaker{}, make(chan struct{})
	a = launchAgent(t, routedConfig, s, func() error {
		<-attach
		return nil
	})
	// Not before: a service that is late by a second would have no route yet.
	until(t, "the service is programmed", func() bool { return a.dp.Dump() != "" })
	return a, s, attach
}

// Peers are known at once, but no session is begun before the data plane works, and
// then with all routes at once.
func TestRoutesBeginWithTheDataPlane(t *testing.T) {
	a, s, attach := launchRouted(t)
	var r observe.Routes
	until(t, "the reason is shown", func() bool {
		r = observe.Routes{}
		text := a.show("routes", "-o", "json")
		return json.Unmarshal([]byte(text), &r) == nil && len(r.Announcements) == 1
	})
	if got := r.Announcements[0]; got.Announced || got.Reason != "the data plane is not attached yet" || !slices.Equal(s.said(), []string{"configure"}) {
		t.Errorf("%+v, the speaker has %q", got, s.said())
	}
	close(attach)
	s.await(t, "configure", "set 10.1.1.1/32")
}

func TestRoutesAreShown(t *testing.T) {
	a, _ := startRouted(t)
	var r observe.Routes
	a.decodes("routes", &r)
	if !r.Enabled || r.ASN != 65021 || len(r.Peers) != 2 || len(r.Announcements) != 1 {
		t.Fatalf("%+v", r)
	}
	got, want := r.Announcements[0], []string{"65021:100", "65021:1:2", "local-pref 200", "med 0", "prepend 2", "bandwidth 2.5G"}
	if !got.Announced || !slices.Equal(got.Attributes, want) || !slices.Equal(got.Services, []string{"web"}) ||
		!slices.Equal(got.Peers, []netip.Addr{netip.MustParseAddr("10.0.2.1")}) || got.Since.IsZero() {
		t.Errorf("%+v, want attributes %q", got, want)
	}
	a.await(`msg="route announced" prefix=10.1.1.1/32 reason="served for web"`, 1)
}

// Routes of lost services are withdrawn; a reload changes peers and policies.
func TestRoutesFollow(t *testing.T) {
	a, s := startRouted(t)
	for _, backend := range []string{"10.0.0.21", "10.0.0.22"} {
		a.dp.SetUnusable(netip.AddrPortFrom(netip.MustParseAddr(backend), 80), "no neighbour")
	}
	a.dp.MarkStale(webVIP)
	s.await(t, "configure", "set 10.1.1.1/32", "set")
	a.await(`msg="route withdrawn" prefix=10.1.1.1/32 reason="web: 0 of 2 backends in use, 1 wanted (10.0.0.21:80: no neighbour)"`, 1)
	a.dp.SetUnusable(netip.MustParseAddrPort("10.0.0.21:80"), "")
	a.dp.MarkStale(webVIP)
	s.await(t, "configure", "set 10.1.1.1/32", "set", "set 10.1.1.1/32")
	a.write(strings.Replace(strings.Replace(routedConfig, "10.1.0.0/16]", "10.1.0.0/16], aggregate: true", 1), "    - {address: 10.0.2.1, asn: 65000}\n", "", 1))
	a.show("reload")
	s.await(t, "configure", "set 10.1.1.1/32", "set", "set 10.1.1.1/32", "set 10.1.0.0/16", "configure")
	a.write(testConfig)
	a.fails("reload", "bgp was asn 65021 with routerID 10.0.2.11 and would be absent")
}

// Routes go before a service refuses new flows, and come back after it takes them
// again. A drained node's go while it serves.
func TestRoutesAndDrains(t *testing.T) {
	a, s := startRouted(t)
	s.mark("refusing", a.dp.Dump, "out: drained")
	begun := []string{"configure", "set 10.1.1.1/32"}
	a.show("drain", "service", "web")
	s.await(t, append(begun, "set 10.1.1.1/32 leaving", "set")...)
	if dump := a.dp.Dump(); !strings.Contains(dump, "out: drained") {
		t.Errorf("drain returned before the data plane followed:\n%s", dump)
	}
	a.show("undrain", "service", "web")
	gone := slices.Concat(begun, []string{"set 10.1.1.1/32 leaving", "set", "set 10.1.1.1/32"})
	s.await(t, gone...)
	a.show("drain", "node")
	s.await(t, append(gone, "set 10.1.1.1/32 leaving", "set")...)
	a.show("undrain", "node")
	s.await(t, append(gone, "set 10.1.1.1/32 leaving", "set", "set 10.1.1.1/32")...)
}

// SIGTERM: peers are asked to prefer others, then the routes go, then the node
// waits, then the sessions end.
func TestRoutesAndTermination(t *testing.T) {
	a, s := startRouted(t)
	s.mark("quiet", a.log.String, "waiting for traffic to cease")
	close(a.terminate)
	s.await(t, "configure", "set 10.1.1.1/32", "set 10.1.1.1/32 leaving", "set", "close (quiet)", "abandon (quiet)")
	if err := a.stop(); err != nil {
		t.Error(err)
	}
}

// An agent that stops at once leaves the routes to the next agent.
func TestImmediateStopKeepsRoutes(t *testing.T) {
	a, s := startRouted(t)
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	s.await(t, "configure", "set 10.1.1.1/32", "abandon")
}
