// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// toAnother is a frame for another station.
func toAnother(frame []byte) []byte { return changedTo(frame, 5, 0xee) }

// Frames that a switch floods are left to the station that they are for, in every mode,
// where they would leave as they came in. Broadcasts are for this node, too.
func TestOtherHost(t *testing.T) {
	p, hops := newTestPlane(t)
	for _, c := range forwardCases() {
		if c.index != testIndex || c.segment.Overlay() || c.tagIn != c.tagOut {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			hops.vlan = c.tagOut
			update(t, p, c.service())
			defer remove(t, p, c.service().VIP)
			wantExit(t, p, toAnother(c.in()), xdpPass, "pass_other_host")
			wantVerdict(t, p, changedTo(c.in(), 0, 0xff), xdpTX, "forward_"+c.forward.String())
		})
	}
}

// The same with NAT, for packets of a session and new ones, and with DSR.
func TestNATOtherHost(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		update(t, p, c.service())
		wantExit(t, p, toAnother(c.fromClient(tcpSYN).build()), xdpPass, "pass_other_host")
		begin(t, p, c)
		wantExit(t, p, toAnother(c.fromClient(tcpACK).build()), xdpPass, "pass_other_host")
		remove(t, p, c.vip)
	}
	for _, c := range relayCases() {
		update(t, p, c.relayed())
		wantExit(t, p, toAnother(c.fromClient(tcpSYN).build()), xdpPass, "pass_other_host")
		remove(t, p, c.vip)
	}
}

// A segment that is on its way to another node is neither passed on nor refused by one
// that only sees it.
func TestPeerLookupOtherHost(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range tcpRelayCases() {
		svc := c.asking()
		svc.Backends[1].Weight, svc.Backends[2].Weight = 0, 0
		update(t, p, svc)
		for _, hops := range []uint8{lookupHops(2), lookupHops(1), lookupHops(0), 64} {
			in := c.withHops(hops, macOf(svc.Backends[1].Node))
			in.destination = lb.MAC{2, 0, 0, 0, 0, 0xee}
			wantExit(t, p, in.build(), xdpPass, "pass_other_host")
		}
		remove(t, p, c.vip)
	}
}

// A traced frame for the zero address is the balancer's; for another station it is not.
func TestTraceOtherHost(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := manyBackends(vip4, 1)
	update(t, p, svc)
	for mac, want := range map[lb.MAC]string{{}: "forward_l2dsr", ownMAC: "forward_l2dsr", {2, 0, 0, 0, 0, 0xee}: "pass_other_host"} {
		f := clientFrame(svc.VIP, client4)
		f.destination = mac
		if got := trace(t, p, f.build()).Exit; got != want {
			t.Errorf("to %s: exit %s, want %s", mac, got, want)
		}
	}
}
