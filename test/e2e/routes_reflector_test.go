// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// Balancers that are pods behind their node's address are one neighbour each for
// the reflector, and one next hop each for the router, whatever becomes of others.
func TestReflectorSNAT(t *testing.T) {
	for _, router := range []netlab.RouterKind{netlab.FRR, netlab.BIRD} {
		t.Run(string(router), func(t *testing.T) {
			t.Parallel()
			needRoot(t)
			topology, err := netlab.SNAT(netlab.SNATOptions{Fairlead: "fairlead", Router: router, Balancers: 3, Servers: 2})
			if err != nil {
				t.Fatal(err)
			}
			l := bringUp(t, "snat-"+string(router), topology)
			t.Run("clients", l.checkSharedAddress)
			t.Run("all take part", l.checkAllPods)
			t.Run("one stops", l.checkPodStops)
			t.Run("one is killed", l.checkPodKilled)
			t.Run("reflector killed", l.checkReflectorKilled)
			t.Run("reflector stopped", l.checkReflectorStopped)
		})
	}
}

// clients are the reflector's that have a session.
func (l *lab) clients(t *testing.T) (all []bgp.PeerState) {
	t.Helper()
	for _, p := range l.routes(t, "reflector").Peers {
		if p.Dynamic && p.State == bgp.Established {
			all = append(all, p)
		}
	}
	return all
}

// The reflector shows each client, by the node's address and its own router id,
// and from whom it has each next hop.
func (l *lab) checkSharedAddress(t *testing.T) {
	clients := l.clients(t)
	if len(clients) != 3 {
		t.Fatalf("clients are %+v", clients)
	}
	node := l.topology.Host("node").Interfaces[0].Addresses[0].Addr()
	for i, p := range clients {
		id := l.topology.Host([]string{"lb1", "lb2", "lb3"}[i]).Agent.BGP.RouterID
		if p.Address != node || p.RouterID != id || p.RoutesReceived != 2 {
			t.Errorf("client %d is %+v, want %s with router id %s", i, p, node, id)
		}
	}
	var hops []netip.Addr
	for _, a := range l.routes(t, "reflector").Announcements {
		if a.Prefix == hostRoute(vip4) && slices.Equal(a.From, []netip.Addr{node}) {
			hops = append(hops, a.NextHop)
		}
	}
	if len(hops) != 3 {
		t.Errorf("next hops of %s are %s", vip4, hops)
	}
}

// checkAlive asks for pages, more often than there are balancers.
func (l *lab) checkAlive(t *testing.T) {
	t.Helper()
	l.gets(t, "client", origin(vip4), 20)
	l.gets(t, "client", origin(vip6), 20)
}

// The client's packets come through every pod, in both families.
func (l *lab) checkAllPods(t *testing.T) {
	for _, service := range []string{"web", "web6"} {
		until(t, "all pods have balanced "+service, func() bool {
			l.checkAlive(t)
			for _, h := range l.hosts(netlab.Balancer) {
				var packets uint64
				for _, b := range backends(t, &h, service) {
					packets += b.Packets
				}
				if packets == 0 {
					return false
				}
			}
			return true
		})
	}
}

// A pod that is stopped goes off the table, and the others' sessions don't mind.
func (l *lab) checkPodStops(t *testing.T) {
	if err := l.Stop(t.Context(), "lb2", "agent"); err != nil {
		t.Fatal(err)
	}
	l.checkTable(t, firstVIPs, gateways{"lb1", "lb3"})
	l.checkAlive(t)
	until(t, "the reflector has two clients", func() bool { return len(l.clients(t)) == 2 })
	if err := l.Restart(t.Context(), "lb2", "agent"); err != nil {
		t.Fatal(err)
	}
	l.checkTable(t, firstVIPs, gateways{"lb1", "lb2", "lb3"})
	l.checkAlive(t)
	l.checkUndisturbed(t, "lb1", "lb3")
}

// checkUndisturbed looks whether balancers' first sessions have never ended.
func (l *lab) checkUndisturbed(t *testing.T, balancers ...string) {
	t.Helper()
	for _, name := range balancers {
		if peer := l.routes(t, name).Peers[0]; peer.State != bgp.Established || peer.Flaps > 0 {
			t.Errorf("%s: the session with %s is %s and ended %d times", name, peer.Address, peer.State, peer.Flaps)
		}
	}
}

// A pod's agent that is killed keeps its next hop until the next one is there.
func (l *lab) checkPodKilled(t *testing.T) {
	steady := l.watchTable(t)
	h := l.State().Host("lb3")
	<-l.signal(t, h, unix.SIGKILL)
	l.checkAlive(t)
	l.startAgent(t, h)
	until(t, "the reflector has three clients", func() bool { return len(l.clients(t)) == 3 })
	steady()
	l.checkUndisturbed(t, "lb1")
}

// watchTable is watchRoute for all balancers.
func (l *lab) watchTable(t *testing.T) (end func()) {
	t.Helper()
	var ends []func()
	for _, h := range l.hosts(netlab.Balancer) {
		ends = append(ends, l.watchRoute(t, vip4, h.Name))
	}
	return func() {
		t.Helper()
		for _, end := range ends {
			end()
		}
	}
}

// A reflector that dies takes no route off the router, nor does the next one that
// hears of clients one after the other.
func (l *lab) checkReflectorKilled(t *testing.T) {
	l.replaceReflector(t, func() error { return l.Kill(t.Context(), "reflector", "reflector") })
}

func (l *lab) checkReflectorStopped(t *testing.T) {
	l.replaceReflector(t, func() error { return l.Stop(t.Context(), "reflector", "reflector") })
}

func (l *lab) replaceReflector(t *testing.T, end func() error) {
	t.Helper()
	steady := l.watchTable(t)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	l.checkAlive(t)
	if err := l.Restart(t.Context(), "reflector", "reflector"); err != nil {
		t.Fatal(err)
	}
	l.awaitReflecting(t)
	l.checkAlive(t)
	steady()
}

// awaitReflecting waits until the router has heard of all routes.
func (l *lab) awaitReflecting(t *testing.T) {
	t.Helper()
	until(t, "the reflector has told the router all", func() bool {
		status, out, _ := fairlead(t, "routes", "-o", "json", "--socket", l.State().Host("reflector").Socket)
		if status != 0 {
			return false // it isn't there yet
		}
		var routes observe.Routes
		decode(t, out, &routes)
		return slices.ContainsFunc(routes.Peers, func(p bgp.PeerState) bool {
			return !p.Dynamic && p.State == bgp.Established && p.RoutesAnnounced == 6
		})
	})
}
