// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// scenario is a sequence of packets, changes and checks, run for each of its cases on a
// plane without services and sessions.
type scenario struct {
	name  string
	cases []natCase
	steps steps
}

type steps []step

type step func(s *scene)

// scene is the state of a scenario: a session, its service and the port by which its
// packets leave for the server.
type scene struct {
	natCase
	t    *testing.T
	p    *xdp.Unattached
	hops *staticHops
	svc  *lb.Service
	port uint16
}

// runScenarios runs scenarios up to the first step that fails.
func runScenarios(t *testing.T, scenarios ...scenario) {
	t.Helper()
	p, hops := newTestPlane(t)
	runScenariosOn(t, p, hops, scenarios...)
}

func runScenariosOn(t *testing.T, p *xdp.Unattached, hops *staticHops, scenarios ...scenario) {
	t.Helper()
	for _, one := range scenarios {
		for _, c := range one.cases {
			t.Run(strings.TrimPrefix(one.name+"/"+c.String(), "/"), func(t *testing.T) {
				s := &scene{natCase: c, t: t, p: p, hops: hops, port: 20000}
				if c.keep {
					s.port = c.client.Port()
				}
				defer func() {
					endAllSessions(t, p)
					must(t, p.Prune(t.Context(), nil))
					*hops = *newStaticHops()
				}()
				for i, do := range one.steps {
					if do(s); t.Failed() {
						t.Fatalf("step %d of %d failed", i+1, len(one.steps))
					}
				}
			})
		}
	}
}

// tcp are the cases with TCP, udp those with UDP.
func tcp(cases []natCase) []natCase {
	return slices.DeleteFunc(slices.Clone(cases), func(c natCase) bool { return c.vip.Protocol != lb.TCP })
}

func udp(cases []natCase) []natCase {
	return slices.DeleteFunc(slices.Clone(cases), func(c natCase) bool { return c.vip.Protocol != lb.UDP })
}

// serve updates to the service of a case with some properties.
func serve(of func(natCase) *lb.Service, set ...func(s *scene, svc *lb.Service)) step {
	return func(s *scene) {
		s.svc = of(s.natCase)
		for _, property := range set {
			property(s, s.svc)
		}
		again(s)
	}
}

// again programs the service again, as a next hop has changed.
func again(s *scene) {
	s.t.Helper()
	update(s.t, s.p, s.svc)
}

// change updates the service.
func change(do func(s *scene, svc *lb.Service)) step {
	return func(s *scene) {
		next := *s.svc
		next.Backends = slices.Clone(next.Backends)
		do(s, &next)
		s.svc = &next
		again(s)
	}
}

// newSession sends the first packet of a session.
func newSession(s *scene) {
	s.t.Helper()
	s.port = begin(s.t, s.p, s.natCase)
}

// newSessionOf is newSession with any backend of the service.
func newSessionOf(s *scene) {
	end := endOf(s.vip.Protocol, wantVerdict(s.t, s.p, s.fromClient(tcpSYN).build(), xdpTX, "forward_nat"))
	s.backend, s.port = end.server, end.snat.Port()
	exchange(s.t, s.p, s.natCase, s.port, "cS")
}

// otherBackend begins a session that isn't with the last one's backend.
func otherBackend(s *scene) {
	last := s.backend
	if newSessionOf(s); s.backend == last {
		s.t.Errorf("a new session went to %s", last)
	}
}

// samePort sends the first packet of a session that gets the last one's port.
func samePort(s *scene) {
	s.t.Helper()
	if port := begin(s.t, s.p, s.natCase); port != s.port {
		s.t.Errorf("port %d, want %d", port, s.port)
	}
}

// send has packets translated. A packet is its sender and its TCP flags: "cSA" is a SYN with
// ACK of the client, "oA" an ACK of the next client, "sF" a FIN of the server.
func send(packets ...string) step {
	return func(s *scene) {
		exchange(s.t, s.p, s.natCase, s.port, packets...)
	}
}

// exchange is send for one session.
func exchange(t *testing.T, p *xdp.Unattached, c natCase, port uint16, packets ...string) {
	t.Helper()
	s := &scene{natCase: c, t: t, p: p, port: port}
	for _, packet := range packets {
		if packet[0] == 's' {
			s.wantExit(packet, "forward_nat_reply")
		} else {
			s.wantExit(packet, "forward_nat")
		}
	}
}

// exit has packets leave through an exit.
func exit(name string, packets ...string) step {
	return func(s *scene) {
		for _, packet := range packets {
			s.wantExit(packet, name)
		}
	}
}

func (s *scene) wantExit(packet, exit string) {
	s.t.Helper()
	c, port, flags := s.read(packet)
	in := c.fromClient(flags)
	if packet[0] == 's' {
		in = c.fromServer(flags, port)
	}
	switch {
	case exit == "forward_nat":
		wantFrame(s.t, s.p, in, c.atServer(flags, port), xdpTX, exit)
	case exit == "forward_nat_reply":
		wantFrame(s.t, s.p, in, c.atClient(flags), xdpTX, exit)
	case exit == "forward_relay":
		wantFrame(s.t, s.p, in, c.atNode(flags), xdpTX, exit)
	case exit == "answer_reset":
		wantAnswer(s.t, s.p, in.build(), resetFrame(c), exit)
	case strings.HasPrefix(exit, "pass_"):
		wantExit(s.t, s.p, in.build(), xdpPass, exit)
	case exit == "drop_ttl" || exit == "drop_loop": // of frames that have their next hop
		wantVerdict(s.t, s.p, in.build(), xdpDrop, exit)
	case strings.HasPrefix(exit, "drop_"):
		wantExit(s.t, s.p, in.build(), xdpDrop, exit)
	default:
		wantVerdict(s.t, s.p, in.build(), xdpTX, exit)
	}
}

// read returns the flow of a packet, its port at the server, and its TCP flags.
func (s *scene) read(packet string) (c natCase, port uint16, flags uint8) {
	c, port = s.natCase, s.port
	if packet[0] == 'o' {
		if c = c.next(); c.keep {
			port = c.client.Port()
		}
	}
	for _, f := range packet[1:] {
		flags |= map[rune]uint8{'S': tcpSYN, 'A': tcpACK, 'F': tcpFIN, 'R': tcpRST, 'P': tcpPSH}[f]
	}
	return c, port, flags
}

// fromRouter has the client's packets arrive from its router, with that hop limit.
func fromRouter(hops uint8) step {
	return func(s *scene) { s.natCase.hops, s.via = hops, clientMAC }
}

// fromNode has them arrive from another node.
func fromNode(node func(natCase) netip.Addr, hops uint8) step {
	return func(s *scene) { s.natCase.hops, s.via = hops, macOf(node(s.natCase)) }
}

// toNode has a client's packet leave for another node, with that hop limit.
func toNode(exit string, node func(natCase) netip.Addr, hops uint8, packet string) step {
	return func(s *scene) {
		c, _, flags := s.read(packet)
		wantFrame(s.t, s.p, c.fromClient(flags), c.toNode(flags, hops, node(c)), xdpTX, exit)
	}
}

// idle makes all entries older.
func idle(by time.Duration) step {
	return func(s *scene) { silence(s.t, s.p, by) }
}

func sweep(s *scene) {
	s.t.Helper()
	must(s.t, s.p.SweepSessions())
}

func confirm(s *scene) { confirmSessions(s.t, s.p) }

func endAll(s *scene) { endAllSessions(s.t, s.p) }

// state checks both entries of the only session.
func state(want table.BalancerNatState) step {
	return func(s *scene) {
		if got := states(s.t, s.p); got != bothIn(want) {
			s.t.Errorf("states %d, want %d", got, want)
		}
	}
}

// sameState runs steps that don't change the state of the only session.
func sameState(all ...step) step {
	return func(s *scene) {
		want := states(s.t, s.p)
		for _, do := range all {
			do(s)
		}
		if got := states(s.t, s.p); got != want {
			s.t.Errorf("states %d, were %d", got, want)
		}
	}
}

// entries checks the number of entries, two for a session.
func entries(want int) step {
	return func(s *scene) {
		if all := sessionsOf(s.t, s.p); len(all) != want {
			s.t.Errorf("%d entries, want %d: %+v", len(all), want, all)
		}
	}
}

// lose deletes the entry of the client, or of the server's replies.
func lose(reply bool) step {
	return func(s *scene) {
		changeSessions(s.t, s.p, func(e *table.BalancerNatSession) bool { return table.IsReply(e) != reply })
	}
}

// alter changes the entry of the client, or of the server's replies.
func alter(reply bool, do func(*table.BalancerNatSession)) step {
	return func(s *scene) {
		changeSessions(s.t, s.p, func(e *table.BalancerNatSession) bool {
			if table.IsReply(e) == reply {
				do(e)
			}
			return true
		})
	}
}

// deleted checks that there is no entry of the client, or of the server's replies.
func deleted(reply bool) step {
	return func(s *scene) {
		for _, e := range sessionsOf(s.t, s.p) {
			if table.IsReply(&e) == reply {
				s.t.Errorf("the entry is still there: %+v", e)
			}
		}
	}
}

// traffic checks the counters of the service.
func traffic(packets, newFlows uint64) step {
	return func(s *scene) {
		if got := stats(s.t, s.p).Services[s.vip]; got.Packets != packets || got.NewFlows != newFlows {
			s.t.Errorf("traffic %+v, want %d packets and %d new flows", got.Traffic, packets, newFlows)
		}
	}
}

// flowCount checks the number of flows of the service.
func flowCount(want int) step {
	return func(s *scene) {
		if n := stats(s.t, s.p).Services[s.vip].Tracking.Flows; n != want {
			s.t.Errorf("%d flows, want %d", n, want)
		}
	}
}

// ifTCP are steps of the cases with TCP.
func ifTCP(all ...step) step {
	return func(s *scene) {
		for _, do := range all {
			if s.vip.Protocol == lb.TCP {
				do(s)
			}
		}
	}
}
