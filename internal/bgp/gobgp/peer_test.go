// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

// prefixes are those of an UPDATE, and whether they are withdrawn.
func prefixes(u *wire.BGPUpdate) (announced, withdrawn []string) {
	c := &conn{told: make(map[netip.Prefix]struct{})}
	c.tell(u)
	for p := range c.told {
		announced = append(announced, p.String())
	}
	for _, w := range u.WithdrawnRoutes {
		withdrawn = append(withdrawn, w.NLRI.String())
	}
	for _, a := range u.PathAttributes {
		if a, ok := a.(*wire.PathAttributeMpUnreachNLRI); ok {
			for _, w := range a.Value {
				withdrawn = append(withdrawn, w.NLRI.String())
			}
		}
	}
	slices.Sort(announced)
	return announced, withdrawn
}

func TestRoutesOfTheHandshakeComeFirst(t *testing.T) {
	d := begin(t, newPeer(t, router), true, to("10.1.1.1/32", "10.0.2.11"))
	d.answer(wire.NewCapGracefulRestart(false, false, 120, nil))
	ends := 0
	for told := false; ends < 2; {
		u := d.next().Body.(*wire.BGPUpdate)
		announced, _ := prefixes(u)
		told = told || slices.Equal(announced, []string{"10.1.1.1/32"})
		if end, family := u.IsEndOfRib(); end {
			ends++
			if family == wire.RF_IPv4_UC && !told {
				t.Error("End-of-RIB before the routes (RFC 4724 §4.1)")
			}
		}
	}
}

func TestAnnounceSendsOnlyDifferences(t *testing.T) {
	p := newPeer(t, router)
	d := begin(t, p, false)
	d.answer()
	routes := []bgp.Route{to("10.1.1.1/32", "10.0.2.11"), to("fd00:1::1/128", "fd00:2::11")}
	med := to("10.1.1.1/32", "10.0.2.11")
	med.MED = new(uint32(7))
	for _, step := range []struct {
		routes               []bgp.Route
		announced, withdrawn []string
		updates, told        int
	}{
		{routes, []string{"10.1.1.1/32", "fd00:1::1/128"}, nil, 2, 2},
		{routes, nil, nil, 0, 2},
		{[]bgp.Route{med, routes[1]}, []string{"10.1.1.1/32"}, nil, 1, 2},
		{routes[:1], []string{"10.1.1.1/32"}, []string{"fd00:1::1/128"}, 2, 1},
		{nil, nil, []string{"10.1.1.1/32"}, 1, 0},
		{nil, nil, nil, 0, 0},
	} {
		sent := d.session.Counters().UpdatesSent
		if err := p.Announce(step.routes); err != nil {
			t.Fatal(err)
		}
		var announced, withdrawn []string
		for range step.updates {
			a, w := prefixes(d.update())
			announced, withdrawn = append(announced, a...), append(withdrawn, w...)
		}
		slices.Sort(announced)
		if !slices.Equal(announced, step.announced) || !slices.Equal(withdrawn, step.withdrawn) {
			t.Errorf("announced %v, want %v; withdrawn %v, want %v", announced, step.announced, withdrawn, step.withdrawn)
		}
		d.eventually("the count of UPDATEs and routes", func() bool {
			return d.session.Counters().UpdatesSent-sent == uint64(step.updates) && d.session.Announced() == step.told
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := d.session.Silent(ctx); err != nil {
		t.Error(err)
	}
}

func TestSilentWaitsForTheSocket(t *testing.T) {
	p := newPeer(t, router)
	d := begin(t, p, false, to("10.1.1.1/32", "10.0.2.11"))
	d.answer()
	d.update()
	d.eventually("the count of routes", func() bool { return d.session.Announced() == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.session.Silent(ctx); err == nil {
		t.Error("silent while a route stands")
	}
	d.session.End(AdministrativeShutdown)
	if err := d.session.Silent(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNextSessionBeginsAtOnce(t *testing.T) {
	p := newPeer(t, router)
	for i := range 3 {
		d := begin(t, p, i == 0, to("10.1.1.1/32", "10.0.2.11"))
		d.answer()
		d.update()
		d.router.Close()
		d.ends("peer closed the connection")
	}
}

func TestEndSendsOneNotification(t *testing.T) {
	d := begin(t, newPeer(t, router), false)
	d.answer()
	n := AdministrativeShutdown
	n.Text = "maintenance"
	d.session.End(n)
	if got := readNotification(d.next().Body.(*wire.BGPNotification)); got != n {
		t.Errorf("sent %+v, want %+v", got, n)
	}
	if m := d.nextUntil(time.Now().Add(timeout)); m != nil {
		t.Errorf("sent %+v after it", m)
	}
	d.ends("administrative shutdown: maintenance")
}

func TestDropSendsNothing(t *testing.T) {
	d := begin(t, newPeer(t, router), false, to("10.1.1.1/32", "10.0.2.11"))
	d.answer()
	d.update()
	d.session.Drop("abandoned")
	if m := d.nextUntil(time.Now().Add(timeout)); m != nil {
		t.Errorf("sent %+v", m)
	}
	d.ends("abandoned")
}

func TestReasons(t *testing.T) {
	short := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 19, 1}
	for name, test := range map[string]struct {
		before, after func(*dialogue) // the handshake
		reason        string
	}{
		"wrong ASN": {
			before: func(d *dialogue) { d.send(openFrom(65055)) },
			reason: "bad peer AS: it is AS 65055, configured is AS 65000",
		},
		"refuses our ASN": {
			before: func(d *dialogue) { d.send(wire.NewBGPNotificationMessage(2, 2, nil)) },
			reason: "peer says: bad peer AS: it doesn't expect AS 65021 here",
		},
		"refuses our ASN after its own": {
			before: func(d *dialogue) {
				d.send(openFrom(65000))
				d.send(wire.NewBGPNotificationMessage(2, 2, nil))
			},
			reason: "peer says: bad peer AS: it doesn't expect AS 65021 here, and says that it is AS 65000",
		},
		"rejects": {
			before: func(d *dialogue) { d.send(wire.NewBGPNotificationMessage(6, 5, nil)) },
			reason: "peer says: connection rejected",
		},
		"hangs up": {
			before: func(d *dialogue) { d.router.Close() },
			reason: "peer closed the connection",
		},
		"resets": {
			before: func(d *dialogue) { _ = d.router.SetLinger(0); d.router.Close() },
			reason: "peer reset the connection",
		},
		"is no BGP speaker": {
			before: func(d *dialogue) { d.sendBytes([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
			reason: "peer sent a bad message: bad message length",
		},
		"OPEN without a body": {
			before: func(d *dialogue) { d.sendBytes(short) },
			reason: "peer sent a bad message: bad message length",
		},
		"UPDATE before OPEN": {
			before: func(d *dialogue) { d.send(wire.NewEndOfRib(wire.RF_IPv6_UC)) },
			reason: "peer sent a bad message: message out of order",
		},
		"second OPEN": {
			after:  func(d *dialogue) { d.send(openFrom(65000)) },
			reason: "peer sent a bad message: message out of order",
		},
		"maintenance": {
			after: func(d *dialogue) {
				d.send(wire.NewBGPNotificationMessage(6, 2, append([]byte{11}, "maintenance"...)))
			},
			reason: "peer says: administrative shutdown: maintenance",
		},
		"a message of a kind that there isn't": {
			after: func(d *dialogue) {
				d.sendBytes(append(bytes.Clone(marker), 0, 21, 77, 1, 2))
			},
			reason: "peer sent a bad message: bad message type",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := begin(t, newPeer(t, router), false)
			if test.before != nil {
				d.next()
				test.before(d)
			} else {
				d.answer()
				test.after(d)
			}
			d.ends(test.reason)
		})
	}
}

func TestRoutesOfThePeerAreThrownAway(t *testing.T) {
	p := newPeer(t, router)
	d := begin(t, p, false)
	d.answer(wire.NewCapRouteRefresh())
	garbage := append(bytes.Clone(marker), 0xff, 0xff, wire.BGP_MSG_UPDATE)
	garbage = append(garbage, make([]byte, 0xffff-len(garbage))...)
	const flood = 1000 // 64 MiB
	for range flood {
		d.sendBytes(garbage)
	}
	if err := p.Announce([]bgp.Route{to("10.1.1.1/32", "10.0.2.11")}); err != nil {
		t.Fatal(err)
	}
	d.update()
	d.send(wire.NewBGPRouteRefreshMessage(wire.AFI_IP, 0, wire.SAFI_UNICAST)) // read behind all the UPDATEs
	d.update()
	if got := d.session.Counters().UpdatesReceived; got != flood {
		t.Errorf("%d updates received, want %d", got, flood)
	}
	if d.session.State() != bgp.Established {
		t.Error("session ended:", d.session.Reason())
	}
}

func TestOneWhoAsksAgainAndAgainWaits(t *testing.T) {
	d := begin(t, newPeer(t, router), false, to("10.1.1.1/32", "10.0.2.11"))
	d.answer(wire.NewCapRouteRefresh())
	d.update()
	sent := d.session.Counters().UpdatesSent
	refresh, err := wire.NewBGPRouteRefreshMessage(wire.AFI_IP, 0, wire.SAFI_UNICAST).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	go func() { _, _ = d.router.Write(bytes.Repeat(refresh, 10_000)) }()
	for range 2 {
		d.update()
	}
	if took := time.Since(start); took < refreshInterval {
		t.Errorf("the second answer came after %s", took)
	}
	if got := d.session.Counters().UpdatesSent - sent; got > 3 {
		t.Errorf("%d answers", got)
	}
}

func TestPeerThatReadsNothingHoldsNobodyUp(t *testing.T) {
	p := newPeer(t, router)
	d := begin(t, p, false)
	d.answer()
	_ = d.router.SetReadBuffer(4096)
	_ = d.session.conn.SetWriteBuffer(4096)
	for i := range 20 {
		routes := make([]bgp.Route, 500)
		for j := range routes {
			routes[j] = to(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(j >> 8), byte(j)}), 32).String(), "10.0.2.11")
		}
		if err := p.Announce(routes); err != nil {
			t.Fatal(err)
		}
	}
	d.session.End(Deconfigured)
	d.ends("peer de-configured")
}

func TestHoldTimeForEver(t *testing.T) {
	peer := router
	peer.HoldTime = 0
	d := begin(t, newPeer(t, peer), false)
	if open := d.answer(); open.HoldTime != 0 {
		t.Errorf("proposes a hold time of %d s", open.HoldTime)
	}
}

func TestOpen(t *testing.T) {
	for name, test := range map[string]struct {
		restarted bool
		restart   time.Duration
		flags     uint8
	}{
		"first session":       {true, time.Minute, restartState},
		"later session":       {false, time.Minute, 0},
		"no graceful restart": {true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			peer := router
			peer.RestartTime = test.restart
			open := begin(t, newPeer(t, peer), test.restarted).next().Body.(*wire.BGPOpen)
			i := slices.IndexFunc(capabilities(open), func(c wire.ParameterCapabilityInterface) bool {
				return c.Code() == wire.BGP_CAP_GRACEFUL_RESTART
			})
			if (i >= 0) != (test.restart > 0) {
				t.Fatal("graceful restart is not as configured")
			}
			if i < 0 {
				return
			}
			c := capabilities(open)[i].(*wire.CapGracefulRestart)
			if c.Flags != test.flags || c.Time != 60 || len(c.Tuples) != 2 {
				t.Errorf("%+v", c)
			}
			for _, family := range c.Tuples {
				if family.Flags != forwardingState {
					t.Errorf("family %d: forwarding state is not said to be preserved", family.AFI)
				}
			}
		})
	}
}

func TestWhatThePeerCanDo(t *testing.T) {
	d := begin(t, newPeer(t, router), false)
	d.answer(wire.NewCapGracefulRestart(false, false, 120, nil), wire.NewCapExtendedNexthop(
		[]*wire.CapExtendedNexthopTuple{wire.NewCapExtendedNexthopTuple(wire.RF_IPv4_UC, wire.AFI_IP6)}))
	want := Open{
		ASN: 65000, RouterID: netip.MustParseAddr("10.0.2.1"), HoldTime: 90 * time.Second,
		IPv4: true, IPv6: true, IPv4OverIPv6: true, GracefulRestart: true, longASN: true,
	}
	if got := *d.session.Open(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	old := readOpen(&wire.BGPOpen{MyAS: 65000}) // without capabilities
	if !old.IPv4 || old.IPv6 || old.GracefulRestart {
		t.Errorf("%+v", old)
	}
}

// FuzzReceived feeds a session with what a peer might send.
func FuzzReceived(f *testing.F) {
	open, _ := openFrom(65000).Serialize()
	alive, _ := wire.NewBGPKeepAliveMessage().Serialize()
	f.Add(slices.Concat(open, alive))
	f.Add(slices.Concat(open, alive, open))
	f.Add([]byte(strings.Repeat("\xff", 40)))
	f.Fuzz(func(t *testing.T, sent []byte) {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Skip(err)
		}
		defer l.Close()
		theirs, err := net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr))
		if err != nil {
			t.Skip(err)
		}
		defer theirs.Close()
		ours, err := l.AcceptTCP()
		if err != nil {
			t.Skip(err)
		}
		session := newSession(ours, balancer, router, Handshake{Opened: func(*Session) {}})
		defer session.conn.Close()
		go func() { _, _ = theirs.Write(sent); theirs.Close() }()
		for b := make([]byte, headerSize); ; { // as the library would
			if _, err := session.conn.Read(b); err != nil {
				return
			}
		}
	})
}
