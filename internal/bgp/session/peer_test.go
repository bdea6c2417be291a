// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// prefixes returns the announced and the withdrawn prefixes of an UPDATE.
func prefixes(u *wire.BGPUpdate) (announced, withdrawn []string) {
	w, a := pathsOf(u)
	for _, n := range a {
		announced = append(announced, n.NLRI.String())
	}
	for _, n := range w {
		withdrawn = append(withdrawn, n.NLRI.String())
	}
	slices.Sort(announced)
	return announced, withdrawn
}

// wantUpdate checks the prefixes of the next UPDATE.
func (d *dialogue) wantUpdate(announced, withdrawn []string) {
	d.t.Helper()
	if a, w := prefixes(d.update()); !slices.Equal(a, announced) || !slices.Equal(w, withdrawn) {
		d.t.Errorf("announced %v, want %v; withdrawn %v, want %v", a, announced, w, withdrawn)
	}
}

func announce(t *testing.T, p *Peer, routes ...bgp.Route) {
	t.Helper()
	if err := p.Announce(routes); err != nil {
		t.Fatal(err)
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
	s.Count(&state)
	return state
}

func TestEndOfRIBAfterInitialRoutes(t *testing.T) {
	d := begin(t, newPeer(t, router), true, to("10.1.1.1/32", "10.0.2.11"))
	d.answer(wire.NewCapGracefulRestart(false, false, 120, nil))
	ends := 0
	for announcedAll := false; ends < 2; {
		u := d.next().Body.(*wire.BGPUpdate)
		announced, _ := prefixes(u)
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
	p := newPeer(t, router)
	d := begin(t, p, false)
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
		announce(t, p, step.routes...)
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
			return counters(d.session).UpdatesSent-sent == uint64(step.updates) && d.session.announced.Get() == step.announcedNow
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
	p := newPeer(t, router)
	route := to("10.1.1.1/32", "10.0.2.11")
	d := begin(t, p, false, route)
	d.answer()
	d.wantUpdate([]string{"10.1.1.1/32"}, nil)
	bad := to("10.1.1.2/32", "10.0.2.11")
	bad.NextHop = netip.Addr{}
	if err := p.Announce([]bgp.Route{bad}); err == nil {
		t.Error("a route without a next hop is announced")
	}
	d.wantUpdate(nil, []string{"10.1.1.1/32"})
	announce(t, p, route)
	d.wantUpdate([]string{"10.1.1.1/32"}, nil)
}

func TestAwaitWithdrawn(t *testing.T) {
	p := newPeer(t, router)
	d := begin(t, p, false, to("10.1.1.1/32", "10.0.2.11"))
	d.answer()
	d.update()
	d.eventually("the count of routes", func() bool { return d.session.announced.Get() == 1 })
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
	p := newPeer(t, router)
	for i := range 3 {
		d := begin(t, p, i == 0, to("10.1.1.1/32", "10.0.2.11"))
		d.answer()
		d.update()
		d.router.Close()
		d.ends("the peer closed the connection")
	}
}

func TestEndNotification(t *testing.T) {
	d := begin(t, newPeer(t, router), false)
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
	d := begin(t, newPeer(t, router), false, to("10.1.1.1/32", "10.0.2.11"))
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
			reason: "received a bad message: bad message length",
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

func TestReceivedRoutesDiscarded(t *testing.T) {
	p := newPeer(t, router)
	d := begin(t, p, false)
	d.answer(wire.NewCapRouteRefresh())
	garbage := append(bytes.Clone(marker), 0xff, 0xff, wire.BGP_MSG_UPDATE)
	garbage = append(garbage, make([]byte, 0xffff-len(garbage))...)
	const flood = 1000 // 64 MiB
	for range flood {
		d.sendBytes(garbage)
	}
	announce(t, p, to("10.1.1.1/32", "10.0.2.11"))
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
	d := begin(t, newPeer(t, router), false, to("10.1.1.1/32", "10.0.2.11"))
	d.answer(wire.NewCapRouteRefresh())
	d.update()
	sent := counters(d.session).UpdatesSent
	refresh := serialized(t, wire.NewBGPRouteRefreshMessage(wire.AFI_IP, 0, wire.SAFI_UNICAST), &wire.MarshallingOption{})
	start := time.Now()
	go func() { _, _ = d.router.Write(bytes.Repeat(refresh, 10_000)) }()
	for range 2 {
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
	p := newPeer(t, router)
	d := begin(t, p, false)
	d.answer()
	_ = d.router.SetReadBuffer(4096)
	_ = d.session.peer.SetWriteBuffer(4096)
	for network := range 20 {
		announce(t, p, hosts(network, 500)...)
	}
	d.session.End(Deconfigured)
	d.ends("peer de-configured")
}

// The next connection comes after the peer has read the notification and closed this one.
func TestEndWaitsForClose(t *testing.T) {
	d := begin(t, newPeer(t, router), false)
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

func TestPeerCapabilities(t *testing.T) {
	d := begin(t, newPeer(t, router), false)
	d.answer(wire.NewCapGracefulRestart(false, false, 120, nil), wire.NewCapExtendedNexthop(
		[]*wire.CapExtendedNexthopTuple{wire.NewCapExtendedNexthopTuple(wire.RF_IPv4_UC, wire.AFI_IP6)}))
	want := Open{
		ASN: 65000, RouterID: netip.MustParseAddr("10.0.2.1"), HoldTime: 90 * time.Second,
		IPv4: true, IPv6: true, IPv4OverIPv6: true, GracefulRestart: true, longASN: true,
	}
	if got := *d.session.Status().Open; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	old := readOpen(&wire.BGPOpen{MyAS: 65000}) // without capabilities
	if !old.IPv4 || old.IPv6 || old.GracefulRestart {
		t.Errorf("%+v", old)
	}
}

// FuzzReceived feeds a session with messages that a peer might send. Fuzzing uses up the
// ports of closed connections, for a minute each: inputs without one are skipped.
func FuzzReceived(f *testing.F) {
	open, _ := openFrom(65000).Serialize()
	alive, _ := wire.NewBGPKeepAliveMessage().Serialize()
	f.Add(slices.Concat(open, alive))
	f.Add(slices.Concat(open, alive, open))
	for _, messages := range malformedOpens() {
		f.Add(messages)
	}
	for _, input := range [][]byte{
		{0, wire.BGP_MSG_UPDATE, 4, 0, 0, 0, 0}, // before an OPEN
		{1, wire.BGP_MSG_UPDATE, 4, 0, 0, 0, 0, wire.BGP_MSG_ROUTE_REFRESH, 4, 0, 1, 0, 1, wire.BGP_MSG_NOTIFICATION, 4, 6, 2},
		{1, wire.BGP_MSG_ROUTE_REFRESH, 1, 0}, {1, 9, 1, 0}, {1, wire.BGP_MSG_NOTIFICATION, 2, 3, 11},
	} {
		f.Add(framed(input))
	}
	f.Add(slices.Concat(capableOpen(), alive))
	f.Add([]byte(strings.Repeat("\xff", 40)))
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs, err := connected()
		if err != nil {
			t.Skip(err)
		}
		defer theirs.Close()
		session := newSession(&Pending{TCPConn: ours}, balancer, router)
		session.opened = func(*Session) {}
		defer session.close()
		go func() { _, _ = theirs.Write(sent); theirs.Close() }()
		_ = session.receive(io.Discard)
	})
}

// A peer that neither sends nor reads ends with the hold timer, although the library's
// notification can't be sent.
func TestHoldTimerWithBlockedPeer(t *testing.T) {
	peer := router
	peer.HoldTime = 3 * time.Second
	p := newPeer(t, peer)
	d := begin(t, p, false)
	d.answer()
	_ = d.router.SetReadBuffer(4096)
	_ = d.session.peer.SetWriteBuffer(4096)
	routes := hosts(0, 20_000)
	for i := range routes {
		routes[i].MED = new(uint32(i)) // an UPDATE each
	}
	announce(t, p, routes...)
	d.ends("hold timer expired: the peer was silent")
}

// Routes that are announced right after the session is established reach the peer.
func TestAnnounceWhenEstablished(t *testing.T) {
	p := newPeer(t, router)
	for i := range 50 {
		d := begin(t, p, false)
		d.answer()
		route := to("10.1.1.1/32", "10.0.2.11")
		route.MED = new(uint32(i))
		announce(t, p, route)
		d.update()
		d.session.Drop("next")
		d.ends("next")
	}
}

// An instance that accepts no more connections is replaced.
func TestStuckInstance(t *testing.T) {
	p := newPeer(t, router)
	p.instance.stuck.Store(true)
	d := begin(t, p, false, to("10.1.1.1/32", "10.0.2.11"))
	d.answer()
	d.update()
	if p.instance.stuck.Load() {
		t.Error("not replaced")
	}
}

// Another process of the machine can't connect to the library in place of a peer.
func TestOtherProcess(t *testing.T) {
	p := newPeer(t, router)
	key := newKey(routerKeys)
	err := p.instance.lib.AddPeer(t.Context(), &api.AddPeerRequest{Peer: apiPeer(&p.local, &p.config, key)})
	if err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: key.AsSlice()}, Timeout: 100 * time.Millisecond}
	if conn, err := dialer.DialContext(t.Context(), "tcp4", p.instance.listen.String()); err == nil {
		conn.Close()
		t.Error("connected without the password")
	}
}

// The library forgets its own configuration when it stops: a connection that it takes at
// this moment has to be answered before.
func TestCloseDuringHandshake(t *testing.T) {
	for range 200 {
		p, err := NewPeer(t.Context(), balancer, router, func(*Session) {}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := connect(t)
		if _, err := theirs.Write(make([]byte, headerSize)); err != nil {
			t.Fatal(err)
		}
		s, err := p.Begin(t.Context(), &Pending{TCPConn: ours}, false)
		if err != nil {
			t.Fatal(err)
		}
		<-s.Ended()
		p.Close()
	}
}

// So has one that begins at this moment, or whose beginning is cancelled.
func TestCloseDuringBegin(t *testing.T) {
	for n := range 200 {
		i, err := Start(t.Context(), balancer, func(Change) {}, func(netip.Addr) {}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ours, _ := connect(t)
		s := newSession(&Pending{TCPConn: ours}, balancer, router)
		begun := make(chan error)
		go func() { begun <- i.begin(ctx, s, apiPeer(&balancer, &router, s.key)) }()
		for range n { // spread over the beginning
			i.state(s.key)
		}
		cancel()
		i.Close()
		if err := <-begun; err == nil {
			<-s.Ended()
		}
	}
}
