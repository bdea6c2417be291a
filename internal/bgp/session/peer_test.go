// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// contents returns the announced and the withdrawn prefixes of an UPDATE.
func contents(u *wire.BGPUpdate) (announced, withdrawn []string) {
	add := func(to *[]string, paths []wire.PathNLRI) {
		for _, p := range paths {
			text := p.NLRI.String()
			if p.ID != 0 {
				text += fmt.Sprintf(" %d", p.ID)
			}
			*to = append(*to, text)
		}
		slices.Sort(*to)
	}
	add(&announced, u.NLRI)
	add(&withdrawn, u.WithdrawnRoutes)
	for _, a := range u.PathAttributes {
		switch a := a.(type) {
		case *wire.PathAttributeMpUnreachNLRI:
			add(&withdrawn, a.Value)
		case *wire.PathAttributeMpReachNLRI:
			add(&announced, a.Value)
		}
	}
	return announced, withdrawn
}

// wantUpdate checks the prefixes of the next UPDATE.
func (d *dialogue) wantUpdate(announced, withdrawn []string) {
	d.t.Helper()
	if a, w := contents(d.update()); !slices.Equal(a, announced) || !slices.Equal(w, withdrawn) {
		d.t.Errorf("announced %v, want %v; withdrawn %v, want %v", a, announced, w, withdrawn)
	}
}

func (d *dialogue) announce(routes ...bgp.Route) {
	d.t.Helper()
	if err := d.session.Announce(routes); err != nil {
		d.t.Fatal(err)
	}
}

// hosts are routes to that many addresses of 10.0.0.0/8, beginning at one of its /16.
func hosts(network, number int) []bgp.Route {
	routes := make([]bgp.Route, number)
	for i := range routes {
		routes[i] = to(fmt.Sprintf("10.%d.%d.%d/32", network, i>>8, i&0xff), "10.0.2.11")
	}
	return routes
}

// counters returns the counters of a session.
func counters(s *Session) (state bgp.PeerState) {
	s.count(&state)
	return state
}

func TestEndOfRIBAfterInitialRoutes(t *testing.T) {
	d := begin(t, router, to("10.1.1.1/32", "10.0.2.11"))
	d.answer(wire.NewCapGracefulRestart(false, false, 120, nil))
	ends := 0
	for announcedAll := false; ends < 2; {
		u := d.next().Body.(*wire.BGPUpdate)
		announced, _ := contents(u)
		announcedAll = announcedAll || slices.Equal(announced, []string{"10.1.1.1/32"})
		if end, family := u.IsEndOfRib(); end {
			ends++
			if family == wire.RF_IPv4_UC && !announcedAll {
				t.Error("End-of-RIB before the routes (RFC 4724 §4.1)")
			}
		}
	}
}

func TestAnnounceDifference(t *testing.T) {
	d := begin(t, router)
	d.answer()
	routes := []bgp.Route{to("10.1.1.1/32", "10.0.2.11"), to("fd00:1::1/128", "fd00:2::11")}
	med := to("10.1.1.1/32", "10.0.2.11")
	med.MED = new(uint32(7))
	for _, step := range []struct {
		routes                []bgp.Route
		announced, withdrawn  []string
		updates, announcedNow int
	}{
		{routes, []string{"10.1.1.1/32", "fd00:1::1/128"}, nil, 2, 2},
		{routes, nil, nil, 0, 2},
		{[]bgp.Route{med, routes[1]}, []string{"10.1.1.1/32"}, nil, 1, 2},
		{routes[:1], []string{"10.1.1.1/32"}, []string{"fd00:1::1/128"}, 2, 1},
		{nil, nil, []string{"10.1.1.1/32"}, 1, 0},
		{nil, nil, nil, 0, 0},
	} {
		sent := counters(d.session).UpdatesSent
		d.announce(step.routes...)
		var announced, withdrawn []string
		for range step.updates {
			a, w := contents(d.update())
			announced, withdrawn = append(announced, a...), append(withdrawn, w...)
		}
		slices.Sort(announced)
		if !slices.Equal(announced, step.announced) || !slices.Equal(withdrawn, step.withdrawn) {
			t.Errorf("announced %v, want %v; withdrawn %v, want %v", announced, step.announced, withdrawn, step.withdrawn)
		}
		d.eventually("the count of UPDATEs and routes", func() bool {
			return counters(d.session).UpdatesSent-sent == uint64(step.updates) && d.session.out.state.Get().paths == step.announcedNow
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := d.session.AwaitWithdrawn(ctx); err != nil {
		t.Error(err)
	}
}

// A route that was withdrawn in the call that could not announce another one is announced
// when it returns.
func TestAnnounceAfterError(t *testing.T) {
	route := to("10.1.1.1/32", "10.0.2.11")
	d := begin(t, router, route)
	d.answer()
	d.wantUpdate([]string{"10.1.1.1/32"}, nil)
	bad := to("10.1.1.2/32", "10.0.2.11")
	bad.NextHop = netip.Addr{}
	if err := d.session.Announce([]bgp.Route{bad}); err == nil {
		t.Error("a route without a next hop is announced")
	}
	d.wantUpdate(nil, []string{"10.1.1.1/32"})
	d.announce(route)
	d.wantUpdate([]string{"10.1.1.1/32"}, nil)
}

func TestAwaitWithdrawn(t *testing.T) {
	d := begin(t, router, to("10.1.1.1/32", "10.0.2.11"))
	d.answer()
	d.update()
	d.eventually("the count of routes", func() bool { return d.session.out.state.Get().paths == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.session.AwaitWithdrawn(ctx); err == nil {
		t.Error("returns while a route is announced")
	}
	d.session.End(AdministrativeShutdown)
	if err := d.session.AwaitWithdrawn(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestReconnect(t *testing.T) {
	for range 3 {
		d := begin(t, router, to("10.1.1.1/32", "10.0.2.11"))
		d.answer()
		d.update()
		d.router.Close()
		d.ends("the peer closed the connection")
	}
}

func TestEndNotification(t *testing.T) {
	d := begin(t, router)
	d.answer()
	n := AdministrativeShutdown
	n.Text = "maintenance"
	d.session.End(n)
	if got := readNotification(d.next().Body.(*wire.BGPNotification)); got != n {
		t.Errorf("sent %+v, want %+v", got, n)
	}
	if m := d.nextUntil(time.Now().Add(await.Patience)); m != nil {
		t.Errorf("sent %+v after it", m)
	}
	d.ends("administrative shutdown: maintenance")
}

func TestDropWithoutNotification(t *testing.T) {
	d := begin(t, router, to("10.1.1.1/32", "10.0.2.11"))
	d.answer()
	d.update()
	d.session.Drop("abandoned")
	if m := d.nextUntil(time.Now().Add(await.Patience)); m != nil {
		t.Errorf("sent %+v", m)
	}
	d.ends("abandoned")
}

func TestEndReasons(t *testing.T) {
	short := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 19, 1}
	for name, test := range map[string]struct {
		before, after func(*dialogue) // the handshake
		reason        string
	}{
		"wrong ASN": {
			before: func(d *dialogue) { d.send(openFrom(65055)) },
			reason: "bad peer AS: the peer is AS 65055, configured is AS 65000",
		},
		"refuses our ASN": {
			before: func(d *dialogue) { d.send(wire.NewBGPNotificationMessage(2, 2, nil)) },
			reason: "received NOTIFICATION: bad peer AS: the peer does not accept AS 65021",
		},
		"refuses our ASN after its own": {
			before: func(d *dialogue) {
				d.send(openFrom(65000))
				d.send(wire.NewBGPNotificationMessage(2, 2, nil))
			},
			reason: "received NOTIFICATION: bad peer AS: the peer does not accept AS 65021, and is AS 65000 itself",
		},
		"rejects": {
			before: func(d *dialogue) { d.send(wire.NewBGPNotificationMessage(6, 5, nil)) },
			reason: "received NOTIFICATION: connection rejected",
		},
		"hangs up": {
			before: func(d *dialogue) { d.router.Close() },
			reason: "the peer closed the connection",
		},
		"resets": {
			before: func(d *dialogue) { _ = d.router.SetLinger(0); d.router.Close() },
			reason: "the peer reset the connection",
		},
		"not a BGP speaker": {
			before: func(d *dialogue) { d.sendBytes([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
			reason: "received a bad message: connection not synchronised",
		},
		"OPEN without a body": {
			before: func(d *dialogue) { d.sendBytes(short) },
			reason: "received a bad message: bad message length",
		},
		"UPDATE before OPEN": {
			before: func(d *dialogue) { d.send(wire.NewEndOfRib(wire.RF_IPv6_UC)) },
			reason: "received a bad message: message out of order",
		},
		"second OPEN": {
			after:  func(d *dialogue) { d.send(openFrom(65000)) },
			reason: "received a bad message: message out of order",
		},
		"maintenance": {
			after: func(d *dialogue) {
				d.send(wire.NewBGPNotificationMessage(6, 2, append([]byte{11}, "maintenance"...)))
			},
			reason: "received NOTIFICATION: administrative shutdown: maintenance",
		},
		"a message of a kind that there isn't": {
			after: func(d *dialogue) {
				d.sendBytes(append(bytes.Clone(marker), 0, 21, 77, 1, 2))
			},
			reason: "received a bad message: bad message type",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := begin(t, router)
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

func TestReceivedRoutesDiscarded(t *testing.T) {
	d := begin(t, router)
	d.answer(wire.NewCapRouteRefresh())
	garbage := message(make([]byte, wire.BGP_MAX_MESSAGE_LENGTH-headerSize))
	const flood = 16000 // 64 MiB
	for range flood {
		d.sendBytes(garbage)
	}
	d.announce(to("10.1.1.1/32", "10.0.2.11"))
	d.update()
	d.send(wire.NewBGPRouteRefreshMessage(wire.AFI_IP, 0, wire.SAFI_UNICAST)) // read after all the UPDATEs
	d.update()
	if got := counters(d.session).UpdatesReceived; got != flood {
		t.Errorf("%d updates received, want %d", got, flood)
	}
	if d.session.Status().State != bgp.Established {
		t.Error("session ended:", d.session.Status().Reason)
	}
}

func TestRouteRefreshRateLimit(t *testing.T) {
	d := begin(t, router, to("10.1.1.1/32", "10.0.2.11"))
	d.answer(wire.NewCapRouteRefresh())
	d.update()
	sent := counters(d.session).UpdatesSent
	refresh, err := wire.NewBGPRouteRefreshMessage(wire.AFI_IP, 0, wire.SAFI_UNICAST).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 2 {
		go func() { _, _ = d.router.Write(bytes.Repeat(refresh, 10_000)) }()
		d.update()
	}
	if took := time.Since(start); took < refreshInterval {
		t.Errorf("the second answer came after %s", took)
	}
	if got := counters(d.session).UpdatesSent - sent; got > 3 {
		t.Errorf("%d answers", got)
	}
}

func TestSlowReaderDoesNotBlock(t *testing.T) {
	d := begin(t, router)
	d.answer()
	_ = d.router.SetReadBuffer(4096)
	_ = d.session.conn.(*net.TCPConn).SetWriteBuffer(4096)
	for network := range 20 {
		d.announce(hosts(network, 500)...)
	}
	d.session.End(Deconfigured)
	d.ends("peer de-configured")
}

// The next connection comes after the peer has read the notification and closed this one.
func TestEndWaitsForClose(t *testing.T) {
	d := begin(t, router)
	d.answer()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.session.End(ConfigurationChanged)
	}()
	if got := readNotification(d.next().Body.(*wire.BGPNotification)); got != ConfigurationChanged {
		t.Errorf("sent %+v", got)
	}
	select {
	case <-ended:
		t.Error("ended before the peer closed its end")
	case <-time.After(closeTimeout / 4):
	}
	d.router.Close()
	d.await(ended, "the end")
}

func TestHoldTimeZero(t *testing.T) {
	peer := router
	peer.HoldTime = 0
	d := begin(t, peer)
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
			open := beginWith(t, Options{Local: balancer, Peer: peer, Restarted: test.restarted}).next().Body.(*wire.BGPOpen)
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

func TestPeerCapabilities(t *testing.T) {
	d := begin(t, router)
	d.answer(wire.NewCapGracefulRestart(false, false, 120, nil), wire.NewCapExtendedNexthop(
		[]*wire.CapExtendedNexthopTuple{wire.NewCapExtendedNexthopTuple(wire.RF_IPv4_UC, wire.AFI_IP6)}))
	want := Open{
		ASN: 65000, RouterID: netip.MustParseAddr("10.0.2.1"), HoldTime: 90 * time.Second,
		IPv4: true, IPv6: true, IPv4OverIPv6: true,
		GracefulRestart: true, RestartTime: 2 * time.Minute, longASN: true,
	}
	if got := *d.session.Status().Open; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	old := readOpen(&wire.BGPOpen{MyAS: 65000}) // without capabilities
	if !old.IPv4 || old.IPv6 || old.GracefulRestart {
		t.Errorf("%+v", old)
	}
}

// A message that has arrived when the hold timer expires is read; without one the session ends.
func TestLateReader(t *testing.T) {
	ours, theirs := connect(t)
	t.Cleanup(func() { ours.Close() })
	s := &Session{conn: ours, in: bufio.NewReader(ours), deadline: time.Now().Add(-time.Second)}
	if _, err := theirs.Write(keepalive); err != nil {
		t.Fatal(err)
	}
	if m, err := s.next(); err != nil || !bytes.Equal(m, keepalive) {
		t.Errorf("% x, error %v", m, err)
	}
	_, err := s.next()
	if n, _ := errors.AsType[Notification](err); n.Code != wire.BGP_ERROR_HOLD_TIMER_EXPIRED {
		t.Errorf("error %v, want that the hold timer has expired", err)
	}
}

// A peer that neither sends nor reads ends with the hold timer, although the
// notification can't be sent.
func TestHoldTimerWithBlockedPeer(t *testing.T) {
	peer := router
	peer.HoldTime = 3 * time.Second
	d := begin(t, peer)
	d.answer()
	_ = d.router.SetReadBuffer(4096)
	_ = d.session.conn.(*net.TCPConn).SetWriteBuffer(4096)
	routes := hosts(0, 20_000)
	for i := range routes {
		routes[i].MED = new(uint32(i)) // an UPDATE each
	}
	d.announce(routes...)
	d.ends("hold timer expired: the peer was silent")
}

// Routes that are announced right after the session is established reach the peer.
func TestAnnounceWhenEstablished(t *testing.T) {
	for i := range 50 {
		d := begin(t, router)
		d.answer()
		route := to("10.1.1.1/32", "10.0.2.11")
		route.MED = new(uint32(i))
		d.announce(route)
		d.update()
		d.session.Drop("next")
		d.ends("next")
	}
}
