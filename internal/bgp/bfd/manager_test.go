// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
)

// ends starts an end in two hosts, which watch each other.
func ends(t *testing.T, lab *netlab.Lab) (near, next *end) {
	t.Helper()
	near, next = startEnd(t, lab, "near"), startEnd(t, lab, "next")
	near.set(to(next4), to(next6))
	next.set(to(near4), to(near6))
	return near, next
}

// both is ends whose sessions are up.
func both(t *testing.T, lab *netlab.Lab) (near, next *end) {
	t.Helper()
	near, next = ends(t, lab)
	for _, peer := range []string{next4, next6} {
		near.await(0, peer, bgp.BFDUp)
	}
	for _, peer := range []string{near4, near6} {
		next.await(0, peer, bgp.BFDUp)
	}
	return near, next
}

// Every failure is found by those who live, and mended without a further one,
// again and again.
func TestFailures(t *testing.T) {
	lab := newLab(t)
	near, next := both(t, lab)
	for name, c := range map[string]struct {
		fail, mend func()
		// finders learn of it while it lasts.
		finders map[*end][]string
	}{
		"link cut": {
			fail: func() { plug(t, lab, "next", false) }, mend: func() { plug(t, lab, "next", true) },
			finders: map[*end][]string{near: {next4, next6}, next: {near4, near6}},
		},
		"peer hangs": {
			fail: func() { next.signal(syscall.SIGSTOP) }, mend: func() { next.signal(syscall.SIGCONT) },
			finders: map[*end][]string{near: {next4, next6}},
		},
	} {
		for range 3 {
			nearMark, nextMark := near.mark(), next.mark()
			mark := map[*end]int{near: nearMark, next: nextMark}
			c.fail()
			for finder, peers := range c.finders {
				for _, peer := range peers {
					if e := finder.await(mark[finder], peer, bgp.BFDDown); e.Diagnostic != DetectionTimeExpired || e.RemoteAdminDown {
						t.Errorf("%s: %+v", name, e)
					}
				}
			}
			if s := near.ask(next4); s.BFD != bgp.BFDDown || s.BFDReason != "peer timed out" || s.BFDFlaps == 0 {
				t.Errorf("%s: %+v", name, s)
			}
			c.mend()
			for _, peer := range []string{next4, next6} {
				near.await(nearMark, peer, bgp.BFDUp)
			}
			for _, peer := range []string{near4, near6} {
				next.await(nextMark, peer, bgp.BFDUp)
			}
		}
	}
}

// A router between both ends: only sessions that say so come up, and others say
// why not.
func TestMultihop(t *testing.T) {
	lab := newLab(t)
	near, far := startEnd(t, lab, "near"), startEnd(t, lab, "far")
	near.set(over(far4), over(far6))
	far.set(over(near4), over(near6))
	for _, peer := range []string{far4, far6} {
		near.await(0, peer, bgp.BFDUp)
	}
	bounded, one, other := over(far4), to(far4), to(near4)
	bounded.MaxHops, one.Path, other.Path = 1, bgp.SingleHop, bgp.SingleHop
	near.set(bounded)
	await.True(t, "TTL security rejects the hop", func() bool {
		return strings.Contains(near.ask(far4).BFDReason, "packet with TTL 254: want at least 255")
	})
	bounded.MaxHops = 2
	mark := near.mark()
	near.set(bounded)
	near.await(mark, far4, bgp.BFDUp)
	near.set(one)
	far.set(other)
	await.True(t, "the hop is seen", func() bool {
		return strings.Contains(far.ask(near4).BFDReason, "packet with TTL 254: want 255")
	})
}

// The route to a peer may come after BFD's configuration: when the BGP session is
// established, there is one.
func TestLateRoute(t *testing.T) {
	lab := newLab(t)
	gateway := &netlink.Route{Gw: net.ParseIP("10.0.9.254"), Dst: &net.IPNet{IP: net.ParseIP("10.0.8.0"), Mask: net.CIDRMask(24, 32)}}
	near, far := startEnd(t, lab, "near"), startEnd(t, lab, "far")
	if err := lab.Do("near", func() error { return netlink.RouteDel(gateway) }); err != nil {
		t.Fatal(err)
	}
	near.set(to(far4))
	far.set(over(near4))
	await.True(t, "the missing route is seen", func() bool { return strings.Contains(near.ask(far4).BFDReason, "cannot send") })
	if err := lab.Do("near", func() error { return netlink.RouteAdd(gateway) }); err != nil {
		t.Fatal(err)
	}
	near.set(to(far4)) // changes nothing, and the BGP session is established again
	near.await(0, far4, bgp.BFDUp)
}

// A session that is ended on purpose is not a failure, whether the process stops or is
// reconfigured.
func TestAdminDown(t *testing.T) {
	lab := newLab(t)
	near, next := both(t, lab)
	mark := near.mark()
	next.set(to(near6))
	if e := near.await(mark, next4, bgp.BFDDown); !e.RemoteAdminDown {
		t.Errorf("one session is left: %+v", e)
	}
	if s := near.ask(next4); s.BFDReason != "peer is administratively down" {
		t.Errorf("%+v", s)
	}
	next.set(to(near4), to(near6))
	near.await(mark, next4, bgp.BFDUp)
	mark = near.mark()
	next.leave()
	for _, peer := range []string{next4, next6} {
		if e := near.await(mark, peer, bgp.BFDDown); !e.RemoteAdminDown {
			t.Errorf("all are left: %+v", e)
		}
	}
}

// Peers detect an abandoned session like a killed process's.
func TestAbandon(t *testing.T) {
	near, next := both(t, newLab(t))
	mark := near.mark()
	next.abandon()
	for _, peer := range []string{next4, next6} {
		if e := near.await(mark, peer, bgp.BFDDown); e.RemoteAdminDown || e.Diagnostic != DetectionTimeExpired {
			t.Errorf("all are abandoned: %+v", e)
		}
	}
}

// A peer that dies and is back within the detection time is not detected; one that takes
// longer comes up again.
func TestPeerRestarts(t *testing.T) {
	lab := newLab(t)
	patient := to(next4)
	back := to(near4)
	patient.Multiplier, back.Multiplier = 20, 20 // a process is started within two seconds
	near, next := startEnd(t, lab, "near"), startEnd(t, lab, "next")
	near.set(patient)
	next.set(back)
	near.await(0, next4, bgp.BFDUp)
	next.await(0, near4, bgp.BFDUp)
	mark := near.mark()
	for range 3 {
		next.kill()
		next = startEnd(t, lab, "next")
		next.set(back)
		next.await(0, near4, bgp.BFDUp)
	}
	near.quiet(mark)
	for range 2 {
		mark = near.mark()
		next.kill()
		near.await(mark, next4, bgp.BFDDown)
		next = startEnd(t, lab, "next")
		next.set(back)
		near.await(mark, next4, bgp.BFDUp)
	}
	mark = near.mark()
	next.kill()
	near.await(mark, next4, bgp.BFDDown)
	await.True(t, "the closed port is seen", func() bool { return strings.Contains(near.ask(next4).BFDReason, "its port is closed") })
}

// Sessions that stay as they are go on while others come and go, or get other
// intervals. The end of the latter does not count as a failure.
func TestSetKeepsOtherSessions(t *testing.T) {
	lab := newLab(t)
	near, next := both(t, lab)
	nearMark, nextMark := near.mark(), next.mark()
	for range 10 {
		near.set(to(next4), to(next6), to("10.0.9.77"), over(far6))
		near.set(to(next4), to(next6))
	}
	near.quiet(nearMark)
	next.quiet(nextMark)
	slower := to(next4)
	slower.Interval, slower.Multiplier = 300*time.Millisecond, 4
	near.set(slower, to(next6))
	if e := next.await(nextMark, near4, bgp.BFDDown); !e.RemoteAdminDown {
		t.Errorf("%+v", e)
	}
	near.await(nearMark, next4, bgp.BFDUp)
	next.await(nextMark, near4, bgp.BFDUp)
	near.quietWith(nearMark, next6)
	next.quietWith(nextMark, near6)
	if near.ask("10.0.9.77") != (bgp.PeerState{Address: netip.MustParseAddr("10.0.9.77")}) {
		t.Error("a peer that is gone has a status")
	}
}

// Another daemon has the port: a reason that names it, and no more than that.
func TestPortInUse(t *testing.T) {
	lab := newLab(t)
	var squatter net.PacketConn
	err := lab.Do("near", func() (err error) {
		squatter, err = net.ListenPacket("udp4", ":3784")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	near, _ := ends(t, lab)
	near.await(0, next6, bgp.BFDUp)
	await.True(t, "the reason is seen", func() bool {
		return near.ask(next4).BFDReason == "udp port 3784 is in use: another BFD daemon may run here"
	})
	if err := squatter.Close(); err != nil {
		t.Fatal(err)
	}
	near.await(0, next4, bgp.BFDUp)
}
