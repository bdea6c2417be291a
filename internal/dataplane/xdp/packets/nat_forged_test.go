// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fuzzrand"
)

// numbered is a client's segment with these numbers.
func (c natCase) numbered(flags uint8, seq, ack uint32) []byte {
	f := c.fromClient(flags)
	tcp := f.ip[1].(*layers.TCP)
	tcp.Seq, tcp.Ack = seq, ack
	return f.build()
}

// The sequence numbers of a connection in the tests: the server has acknowledged
// clientNext, and the client serverNext.
const (
	clientNext = 0x01020305
	serverNext = 0xf1f2f3f4
)

// established opens a connection.
func established(s *scene) {
	s.t.Helper()
	newSession(s)
	exchange(s.t, s.p, s.natCase, s.port, "sSA", "cA")
	state(table.BalancerNatStateNAT_ESTABLISHED)(s)
}

// reset sends a client's RST with a sequence number.
func reset(seq uint32) step {
	return func(s *scene) { run(s.t, s.p, s.numbered(tcpRST, seq, 0)) }
}

// tcpModes are TCP with translated addresses, and with the client's kept (DSR).
func tcpModes() []natCase { return tcp(append(natCases(), relayCases()...)) }

// Forged segments of an idle connection don't end it, nor move it: they have the wrong
// numbers (RFC 5961). Its server answers each SYN, however long the sender pauses.
func TestForgedSegments(t *testing.T) {
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	runScenarios(t, scenario{"", tcpModes(), steps{
		serve(natCase.service), established,
		func(s *scene) {
			for range repeated(65536) {
				seq, ack := random.Uint32(), random.Uint32()
				if seq-clientNext < 2 || ack-serverNext < 1<<17 {
					continue
				}
				for _, flags := range []uint8{tcpRST, tcpRST | tcpACK, tcpSYN} {
					if random.IntN(200) == 0 {
						silence(s.t, s.p, 2*time.Second)
					}
					run(s.t, s.p, s.numbered(flags, seq, ack))
				}
				run(s.t, s.p, s.fromServer(tcpACK, s.port).build())
			}
		},
		state(table.BalancerNatStateNAT_ESTABLISHED), idle(time.Hour), sweep, send("cA", "sA"),
		reset(clientNext), state(table.BalancerNatStateNAT_CLOSING),
	}})
}

// A connection isn't established by an ACK of a sender that hasn't received the server's SYN.
func TestForgedHandshake(t *testing.T) {
	runScenarios(t, scenario{"", tcpModes(), steps{
		serve(natCase.service), newSession, send("sSA"),
		func(s *scene) {
			exit := "forward_nat"
			if s.keep { // it may be of a connection that another node knows
				exit = "answer_reset"
			}
			wantVerdict(s.t, s.p, s.numbered(tcpACK, clientNext, serverNext-1), xdpTX, exit)
		},
		state(table.BalancerNatStateNAT_ANSWERED), send("cA"), state(table.BalancerNatStateNAT_ESTABLISHED),
	}})
}

// A flood of SYNs and datagrams, two from each client, evicts only sessions of floods:
// established connections continue.
func TestFloodEvictsNoSession(t *testing.T) {
	var all []scenario
	for _, flood := range []lb.Protocol{lb.TCP, lb.UDP} {
		all = append(all, scenario{flood.String(), natCases(), steps{
			serve(natCase.service), newSession, send("sSA", "cA"),
			func(s *scene) {
				other := natCaseOf(s.vip.Address, flood)
				other.vip.Port, other.backend = 81, netip.AddrPortFrom(s.backend.Addr().Next(), 81)
				update(s.t, s.p, other.service())
				for i := range 4 * testCapacity.Sessions {
					other.client = netip.AddrPortFrom(clientOf(s.vip.Address, 0).Addr().Next(), uint16(i))
					run(s.t, s.p, other.fromClient(tcpSYN).build())
					run(s.t, s.p, other.fromClient(tcpSYN).build())
				}
			},
			send("cA", "sA"),
		}})
	}
	runScenarios(t, all...)
}

// A flood of datagrams that a server answers evicts no established connection, however long that is
// silent: a server answers forged addresses, too.
func TestAnsweredFloodEvictsNoConnection(t *testing.T) {
	runScenarios(t, scenario{"", tcpModes(), steps{
		serve(natCase.service), established, idle(time.Hour),
		func(s *scene) {
			other := s.natCase
			other.vip.Port, other.vip.Protocol = 53, lb.UDP
			other.backend = netip.AddrPortFrom(s.backend.Addr().Next(), 53)
			update(s.t, s.p, other.service())
			for i := range 4 * testCapacity.Sessions {
				other.client = clientOf(s.vip.Address, 2000+i)
				_, out := run(s.t, s.p, other.fromClient(0).build())
				run(s.t, s.p, other.fromServer(0, sourcePort(s.t, out)).build())
			}
		},
		send("cA", "sA"),
	}})
}

// No host has such an address: its packets begin no session.
func TestSourcesOfNoHost(t *testing.T) {
	var scenarios []scenario
	for _, one := range []string{
		"224.0.0.5", "255.255.255.255", "0.0.0.0", "0.1.2.3", "127.0.0.1", "240.0.0.1", "::", "::1", "ff02::1",
	} {
		source := netip.MustParseAddr(one)
		vip := vip4
		if source.Is6() {
			vip = vip6
		}
		all := append(natCases(), relayCases()...)
		all = slices.DeleteFunc(all, func(c natCase) bool { return c.vip.Address != vip })
		for i := range all {
			all[i].client = netip.AddrPortFrom(source, 5000)
		}
		scenarios = append(scenarios, scenario{one, all, steps{serve(natCase.service), exit("drop_source_denied", "cS"), entries(0)}})
	}
	runScenarios(t, scenarios...)
}

// Ports of sessions that no client has confirmed are given to others when none is free,
// and ports of established connections never.
func TestFloodTakesNoPort(t *testing.T) {
	const ports = 200
	p, hops := newNATPlane(t, program.NAT{FirstPort: 1, LastPort: ports})
	runScenariosOn(t, p, hops, scenario{"", natCases(), steps{
		serve(natCase.service), newSession, send("sSA", "cA"), idle(-time.Hour), // however long this test takes
		func(s *scene) {
			flood := s.natCase
			for i := range 10 * ports {
				flood.client = clientOf(s.vip.Address, 2000+i)
				wantVerdict(s.t, s.p, flood.fromClient(tcpSYN).build(), xdpTX, "forward_nat")
			}
		},
		send("cA", "sA"),
	}})
}

// After a RST with another number, of a client with data under way, the session stays, but
// its port is given to others once both sides have been silent for minutes.
func TestPortAfterReset(t *testing.T) {
	p, hops := newNATPlane(t, program.NAT{FirstPort: 7, LastPort: 7})
	runScenariosOn(t, p, hops, scenario{"", []natCase{natCaseOf(vip4, lb.TCP)}, steps{
		serve(natCase.service),
		established, reset(clientNext + 1000), exit("drop_no_nat_port", "oS"), idle(3 * time.Minute), send("oS"),
		endAll, established, reset(clientNext + 1000), send("cA"), // the connection continues
		idle(3 * time.Minute), exit("drop_no_nat_port", "oS"),
	}})
}
