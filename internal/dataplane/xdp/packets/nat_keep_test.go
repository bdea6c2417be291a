// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Which address and port servers see, where TestNAT has one service that doesn't change.
func TestNATSourceAddress(t *testing.T) {
	runScenarios(t,
		// A server can't distinguish two of its sessions that have the same client's address and
		// port: the second one gets another port, and keeps the address.
		scenario{"two services of a client", relayCases(), steps{serve(natCase.service), newSession, func(s *scene) {
			other := s.natCase
			other.vip.Port++
			update(s.t, s.p, other.service())
			port := begin(s.t, s.p, other)
			if s.port != s.client.Port() || port == s.port {
				s.t.Fatalf("ports %d and %d of client %s", s.port, port, s.client)
			}
			exchange(s.t, s.p, s.natCase, s.port, "sSA", "cA")
			exchange(s.t, s.p, other, port, "sSA", "cA")
			silence(s.t, s.p, 3*time.Hour)
			if begin(s.t, s.p, other) != s.port {
				s.t.Error("the port isn't the client's, though it is free")
			}
		}}},
		// Sessions stay as they are when a service begins to keep sources.
		scenario{"change of the mode", natCases(), steps{
			serve(natCase.service), newSession, send("sSA", "cA"),
			serve(natCase.service, func(_ *scene, svc *lb.Service) { svc.Forward = lb.DSR }), send("cA", "sA"),
			endAll, func(s *scene) { s.keep = true }, newSession,
		}},
		// A server that is its own client sees the node, as it would drop packets from its own
		// address.
		scenario{"server as client", natCases(), steps{
			func(s *scene) { s.client = netip.AddrPortFrom(s.backend.Addr(), s.client.Port()) },
			serve(natCase.service, func(_ *scene, svc *lb.Service) { svc.Forward = lb.DSR }), newSession, send("sA"),
		}},
	)
}
