// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Servers see the client's own address and port, and what they send to it comes
// from the VIP, errors included.
func TestNATKeepsTheSource(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		c.keep, c.index = true, testIndex
		t.Run(c.vip.String(), func(t *testing.T) {
			update(t, p, c.service())
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			port := begin(t, p, c)
			if port != c.client.Port() {
				t.Errorf("port %d, want the client's %d", port, c.client.Port())
			}
			exchange(t, p, c, port, "sSA")
			for range 2 {
				wantFrame(t, p, c.fromServer(tcpACK, port), c.atClient(tcpACK), xdpTX, "forward_nat_reply")
				wantFrame(t, p, c.fromClient(tcpACK), c.atServer(tcpACK, port), xdpTX, "forward_nat")
			}
		})
	}
}

// A server can't distinguish two of its sessions that have the same client's
// address and port: the second one gets another port, and keeps the address.
func TestNATKeepsTheSourceOnce(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		c.keep, c.index = true, testIndex
		other := c
		other.vip.Port++
		t.Run(c.vip.String(), func(t *testing.T) {
			for _, one := range []natCase{c, other} {
				update(t, p, one.service())
				defer remove(t, p, one.vip)
			}
			defer endAllSessions(t, p)
			port, second := begin(t, p, c), begin(t, p, other)
			if port != c.client.Port() || second == port {
				t.Fatalf("ports %d and %d of client %s", port, second, c.client)
			}
			for _, one := range []struct {
				natCase
				port uint16
			}{{c, port}, {other, second}} {
				wantFrame(t, p, one.fromServer(tcpSYN|tcpACK, one.port), one.atClient(tcpSYN|tcpACK), xdpTX, "forward_nat_reply")
				wantFrame(t, p, one.fromClient(tcpACK), one.atServer(tcpACK, one.port), xdpTX, "forward_nat")
			}
			silence(t, p, 3*time.Hour)
			if begin(t, p, other) != port {
				t.Error("the port isn't the client's, though it is free")
			}
		})
	}
}

// Whether a service keeps sources may change: sessions stay what they are.
func TestNATBeginsToKeepTheSource(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		update(t, p, c.service())
		port := begin(t, p, c)
		exchange(t, p, c, port, "sSA", "cA")
		kept := c
		kept.keep = true
		update(t, p, kept.service())
		wantFrame(t, p, c.fromClient(tcpACK), c.atServer(tcpACK, port), xdpTX, "forward_nat")
		wantFrame(t, p, c.fromServer(tcpACK, port), c.atClient(tcpACK), xdpTX, "forward_nat_reply")
		endAllSessions(t, p)
		begin(t, p, kept)
		remove(t, p, c.vip)
	}
}

// A server that asks itself sees the node, as it would drop packets from its own address.
func TestNATKeepsNoSourceOfItself(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		svc := c.service()
		svc.Forward = lb.DSR
		c.client = netip.AddrPortFrom(c.backend.Addr(), c.client.Port())
		update(t, p, svc)
		port := begin(t, p, c)
		wantFrame(t, p, c.fromServer(tcpACK, port), c.atClient(tcpACK), xdpTX, "forward_nat_reply")
		remove(t, p, c.vip)
	}
}
