// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/netlab"
)

// Of two reflectors either may hang: BFD takes its routes off the router, which
// has the same next hops from the other one.
func TestTwoReflectors(t *testing.T) {
	for _, router := range []netlab.RouterKind{netlab.FRR, netlab.BIRD} {
		t.Run(string(router), func(t *testing.T) {
			t.Parallel()
			topology := routed(t, netlab.ECMPOptions{Router: router, Reflector: true})
			addReflector(&topology)
			l := bringUp(t, "two-"+string(router), topology)
			l.awaitReflectors(t)
			l.checkTable(t, firstVIPs, gateways{"lb1", "lb2", "lb3"})
			for _, host := range []string{"reflector", "server1"} {
				steady := l.watchTable(t)
				l.signalReflector(t, host, unix.SIGSTOP)
				l.checkAlive(t)
				until(t, "balancers have lost "+host, func() bool { return l.haveSessions(t, 1) })
				l.signalReflector(t, host, unix.SIGCONT)
				until(t, "balancers have both", func() bool { return l.haveSessions(t, 2) })
				l.awaitReflectors(t)
				steady()
			}
		})
	}
}

// addReflector lets the first server reflect too.
func addReflector(topology *netlab.Topology) {
	first, second := topology.Host("reflector"), topology.Host("server1")
	was, is := first.Interfaces[0].Addresses[0].Addr(), second.Interfaces[0].Addresses[0].Addr()
	second.Files = maps.Clone(second.Files)
	second.Files[netlab.ReflectorFile] = strings.ReplaceAll(first.Files[netlab.ReflectorFile], was.String(), is.String())
	second.Processes = append(second.Processes, first.Processes...)
	second.Socket = first.Socket
	router := topology.Host("router")
	for name, text := range router.Files {
		var lines []string
		for line := range strings.Lines(text) {
			lines = append(lines, line)
			if strings.Contains(line, "neighbor "+was.String()+" ") {
				lines = append(lines, strings.Replace(line, was.String(), is.String(), 1))
			}
		}
		router.Files[name] = strings.Join(lines, "")
	}
	for i := range topology.Hosts {
		if agent := topology.Hosts[i].Agent; agent != nil {
			peer := agent.BGP.Peers[0]
			peer.Address = is
			agent.BGP.Peers = append(agent.BGP.Peers, peer)
		}
	}
}

// awaitReflectors waits until both have told the router all, and BFD watches all of
// their sessions.
func (l *lab) awaitReflectors(t *testing.T) {
	t.Helper()
	for _, host := range []string{"reflector", "server1"} {
		until(t, host+" is at work", func() bool {
			peers := l.routes(t, host).Peers
			return len(peers) == 4 && !slices.ContainsFunc(peers, func(p bgp.PeerState) bool {
				return p.State != bgp.Established || p.BFD != bgp.BFDUp || !p.Dynamic && p.RoutesAnnounced != 6
			})
		})
	}
}

func (l *lab) signalReflector(t *testing.T, host string, signal unix.Signal) {
	t.Helper()
	if err := l.Signal(t.Context(), host, "reflector", signal); err != nil {
		t.Fatal(err)
	}
}

// haveSessions reports whether each balancer has so many sessions.
func (l *lab) haveSessions(t *testing.T, want int) bool {
	t.Helper()
	return !slices.ContainsFunc(l.hosts(netlab.Balancer), func(h netlab.HostState) bool {
		up := 0
		for _, p := range l.routes(t, h.Name).Peers {
			if p.State == bgp.Established {
				up++
			}
		}
		return up != want
	})
}
