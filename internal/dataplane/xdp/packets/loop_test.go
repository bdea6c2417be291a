// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
)

// Two VIPs that are each other's backends can't loop packets: neither is used, in whatever
// order they come, and each is used again without the other.
func TestVIPsAsBackends(t *testing.T) {
	p, _ := newTestPlane(t)
	service := func(vip, backend netip.Addr) *lb.Service {
		svc := manyBackends(vip, 1)
		svc.Forward, svc.Backends[0].Address = lb.NAT, backend
		return svc
	}
	other := vip4.Next()
	one, two := service(vip4, other), service(other, vip4)
	wantUse := func(svc *lb.Service, used bool) {
		t.Helper()
		got := update(t, p, svc).Backends[0]
		if got.InUse != used || !used && !strings.Contains(got.Reason, "is the address of a VIP") {
			t.Errorf("%s: backend %+v, want in use: %t", svc.VIP, got, used)
		}
	}
	wantStale := func(want lb.VIP) {
		t.Helper()
		p.Recheck()
		select {
		case got := <-p.Stale():
			if got != want {
				t.Errorf("%s is stale, want %s", got, want)
			}
		case <-time.After(await.Patience):
			t.Errorf("%s is not stale", want)
		}
	}
	wantUse(one, true)
	p.Recheck()
	wantUse(two, false)
	wantStale(one.VIP)
	wantUse(one, false)
	remove(t, p, two.VIP)
	wantStale(one.VIP)
	wantUse(one, true)
}

// Of three nodes that are each other's servers with l2dsr, none balances a packet that
// another one has balanced, though their rings differ.
func TestBalancersAsServers(t *testing.T) {
	var all []netip.Addr
	for i := range 3 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, 2, byte(11 + i)}))
	}
	nodes := make([]*xdp.Unattached, len(all))
	for i, own := range all {
		p, hops := newTestPlane(t)
		hops.local = map[netip.Addr]bool{own: true}
		hops.source = macOf(own)
		svc := manyBackends(vip4, len(all))
		for n := range svc.Backends {
			svc.Backends[n].Address = all[n]
			svc.Backends[n].Weight = 1 + (i+n)%3*20
		}
		update(t, p, svc)
		nodes[i] = p
	}
	forwarded := 0
	for flow := range 200 {
		for at := range nodes {
			frame := flowPacket(web4, clientOf(vip4, 2000+flow))
			mac := macOf(all[at])
			copy(frame, mac[:])
			hops := 0
			for {
				verdict, out := run(t, nodes[at], frame)
				if verdict == xdpPass {
					break
				}
				if hops++; verdict != xdpTX || hops > 1 {
					t.Fatalf("flow %d: verdict %d after %d hops", flow, verdict, hops)
				}
				forwarded++
				at = slices.IndexFunc(all, func(a netip.Addr) bool { m := macOf(a); return string(out[:6]) == string(m[:]) })
				frame = out
			}
		}
	}
	if forwarded == 0 {
		t.Error("no packet was forwarded")
	}
}
