// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
	"fairlead.io/fairlead/internal/bgp/session"
)

// step is a random event. It returns a description.
func (h *history) step() string {
	l := h.current
	if l != nil && l.state != bgp.Established && h.random.IntN(2) == 0 {
		return h.proceeds(l)
	}
	switch n := h.random.IntN(100); {
	case n < 15:
		return h.set()
	case n < 19:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.refuses, h.mute = h.random.IntN(4) == 0, h.random.IntN(4) == 0
		return fmt.Sprintf("router refuses connections %t, doesn't reply %t", h.refuses, h.mute)
	case n < 24:
		h.stop(session.Notification{}, h.peer.Stop)
		h.start()
		return "restart of the agent"
	case l == nil:
		return h.calls()
	case n < 28:
		return h.collides(l)
	case n < 32:
		return h.loses(l)
	case n < 36:
		return h.notifies(l)
	case n < 40:
		return h.malformed(l)
	case n < 44:
		return h.bfdDown(l)
	case n < 48:
		l.silent = true
		return "router falls silent"
	case n < 60 && l.state == bgp.Established:
		return h.refresh(l)
	case n < 64:
		h.send(l, framed(typeUpdate, 0, 0, 0, 0), bgp.Established)
		if l.state == bgp.Established {
			h.restartHoldTimer(l)
		}
		return "UPDATE of the router"
	case n < 66 && l.state != bgp.OpenSent:
		h.send(l, h.randomOpen().message())
		return "second OPEN"
	}
	return h.proceeds(l)
}

// set announces random routes.
func (h *history) set() string {
	h.wanted = make(map[netip.Prefix]uint32)
	var routes []bgp.Route
	for _, text := range []string{"10.1.1.1/32", "10.1.1.2/32", "10.2.0.0/16", "fd00:1::1/128", "fd00:1::2/128"} {
		if h.random.IntN(2) == 0 {
			continue
		}
		med := uint32(h.random.IntN(3))
		route := bgp.Route{Prefix: netip.MustParsePrefix(text), NextHop: balancer4, Attributes: bgp.Attributes{MED: &med}}
		if route.Prefix.Addr().Is6() {
			route.NextHop = balancer6
		}
		routes, h.wanted[route.Prefix] = append(routes, route), med
	}
	for _, six := range []bool{false, true} {
		if l := h.current; l != nil && len(h.wants(l, six)) == 0 {
			l.vain[six] = true
		}
	}
	if err := h.peer.set(routes); err != nil {
		h.t.Error(err)
	}
	return fmt.Sprintf("routes %v", h.wanted)
}

// send sends a message. In other states than those that allow it the speaker ends the session (RFC 4271 §8.2.2).
func (h *history) send(l *link, message []byte, allowed ...bgp.SessionState) {
	h.write(l, message)
	if !slices.Contains(allowed, l.state) {
		l.want = &session.Notification{Code: 5}
	}
}

func (h *history) write(l *link, message []byte) {
	if _, err := l.conn.Write(message); err != nil {
		h.t.Fatal(err)
	}
}

// restartHoldTimer restarts the hold timer.
func (h *history) restartHoldTimer(l *link) {
	if l.deadline = (time.Time{}); l.hold > 0 {
		l.deadline = time.Now().Add(l.hold)
	}
}

// keepalive sends a KEEPALIVE, the first one of which establishes the session.
func (h *history) keepalive(l *link) {
	h.send(l, framed(typeKeepalive), bgp.OpenConfirm, bgp.Established)
	if l.state == bgp.OpenSent {
		return
	}
	if l.state == bgp.OpenConfirm {
		l.state, l.established = bgp.Established, time.Now()
		graceful := l.open.graceful && h.config.RestartTime > 0
		maps.DeleteFunc(h.routes, func(p netip.Prefix, _ learned) bool { return !graceful || p.Addr().Is6() && !l.open.six })
	}
	h.restartHoldTimer(l)
	l.nextAlive = time.Now().Add(l.hold / 3)
}

// proceeds is the message that the speaker waits for.
func (h *history) proceeds(l *link) string {
	if l.state != bgp.OpenSent {
		h.keepalive(l)
		return "KEEPALIVE"
	}
	l.open = h.randomOpen()
	h.write(l, l.open.message())
	h.opens(l, time.Now())
	return fmt.Sprintf("OPEN %+v", l.open)
}

func (h *history) randomOpen() openOf {
	return openOf{
		version: 4, asn: 65000, hold: []uint16{0, 3, 9, 60, 180}[h.random.IntN(5)], id: 1,
		six: h.random.IntN(3) > 0, graceful: h.random.IntN(3) > 0,
	}
}

// malformed sends a malformed message, or an OPEN that is to be refused (RFC 4271 §6.1, §6.2).
func (h *history) malformed(l *link) string {
	open := h.randomOpen()
	subcode, what := byte(0), ""
	switch h.random.IntN(5) {
	case 0:
		open.asn, subcode, what = 65055, 2, "AS"
	case 1:
		open.hold, subcode, what = uint16(1+h.random.IntN(2)), 6, "hold time"
	case 2:
		open.version, subcode, what = 3, 1, "version"
	case 3:
		open.id, subcode, what = 0, 3, "identifier"
	default:
		open.parameter, subcode, what = 77, 4, "parameter"
	}
	if l.state == bgp.OpenSent && h.random.IntN(2) == 0 {
		h.write(l, open.message())
		l.want = &session.Notification{Code: 2, Subcode: subcode}
		return "OPEN with a bad " + what
	}
	m := framed(typeKeepalive)
	switch subcode = byte(1 + h.random.IntN(3)); subcode {
	case 1:
		m[3] = 0
	case 2:
		m[17] = 18
	case 3:
		m[18] = 77
	}
	h.write(l, m)
	l.want = &session.Notification{Code: 1, Subcode: subcode}
	return fmt.Sprintf("malformed header %d", subcode)
}

// loses ends the connection without a NOTIFICATION.
func (h *history) loses(l *link) string {
	l.closing = true
	if h.random.IntN(2) == 0 {
		l.conn.Reset()
		return "connection reset"
	}
	_ = l.conn.Close()
	return "connection closed"
}

// notifies ends the session with the router's NOTIFICATION.
func (h *history) notifies(l *link) string {
	l.closing = true
	h.write(l, framed(typeNotification, byte(1+h.random.IntN(7)), byte(h.random.IntN(11))))
	clear(h.routes)
	return "NOTIFICATION of the router"
}

// refresh requests the routes of a family, or of one that the session doesn't have.
func (h *history) refresh(l *link) string {
	afi, safi := byte(1+h.random.IntN(2)), byte(1)
	if h.random.IntN(4) == 0 {
		safi = 128
	}
	h.write(l, framed(typeRefresh, 0, afi, 0, safi))
	if six := afi == 2; safi == 1 && l.asked[six].IsZero() {
		l.asked[six], l.vain[six] = time.Now(), len(h.wants(l, six)) == 0
	}
	return fmt.Sprintf("ROUTE-REFRESH %d/%d", afi, safi)
}

// bfdDown reports that BFD, which was up, went down: for long or only since the session, or on the router's purpose.
func (h *history) bfdDown(l *link) string {
	now := time.Now()
	e := bfd.Event{
		Peer: h.config.Address, Began: now.Add(-time.Duration(h.random.Int64N(int64(time.Second)))), At: now, Old: bgp.BFDUp, New: bgp.BFDDown,
		Diagnostic: bfd.DetectionTimeExpired, RemoteAdminDown: h.random.IntN(4) == 0,
	}
	const detection = 300 * time.Millisecond
	counts := h.config.BFD != nil && !e.RemoteAdminDown && (e.Began.After(l.established) || now.Sub(l.established) >= detection)
	if l.state == bgp.Established && counts {
		l.want = &session.Notification{Code: 6, Subcode: 10}
		h.byBFD, h.restored = !h.config.Passive, h.random.IntN(2) == 0
	}
	h.peer.BFDChanged(e)
	return fmt.Sprintf("BFD down, which counts: %t", counts)
}

// calls connects to a passive peer that waits for it.
func (h *history) calls() string {
	if !h.config.Passive || h.next != nil || !time.Now().After(h.latest) {
		return "nothing"
	}
	l, conn := h.connect()
	h.peer.Accept(conn)
	h.begins(l, time.Now())
	return "router connects"
}

// collides opens another connection to a passive peer: it replaces a session that isn't established, and one with graceful
// restart. Otherwise it is refused if the session lives on (RFC 4271 §6.8, RFC 4724 §5).
func (h *history) collides(l *link) string {
	if !h.config.Passive || h.next != nil || h.contender != nil {
		return "nothing"
	}
	other, conn := h.connect()
	other.open = h.randomOpen()
	if h.random.IntN(4) == 0 {
		other.open.id = 2
	}
	h.peer.Accept(conn)
	h.write(other, other.open.message())
	if graceful := l.open.graceful && h.config.RestartTime > 0; l.state != bgp.Established || graceful && other.open.id == l.open.id {
		l.closing, h.next = true, other
		return "connection that replaces the session"
	}
	l.probed, h.contender = true, other
	other.want = &session.Notification{Code: 6, Subcode: 7}
	return "connection that collides"
}

// stop stops the agent, with a notification or none.
func (h *history) stop(n session.Notification, stop func(session.Notification)) {
	for _, l := range []*link{h.current, h.next, h.contender} {
		if l != nil {
			l.want, l.closing = nil, true
		}
	}
	if l := h.current; l != nil && n.Code != 0 {
		l.want, l.closing = &n, false
	}
	stop(n)
	h.settleStopped()
}

// finish ends the agent as a shutdown, a changed configuration or a crash does. The router has no route after the restart
// time, and none at once after a NOTIFICATION.
func (h *history) finish() {
	established := h.current != nil && h.current.state == bgp.Established
	opening := h.current != nil && h.current.state == bgp.OpenConfirm
	switch n := h.random.IntN(3); {
	case n == 0 && !opening: // which leave would wait for
		h.wanted = nil
		h.stop(session.AdministrativeShutdown, func(session.Notification) {
			if err := h.peer.leave(context.Background()); err != nil {
				h.t.Error(err)
			}
		})
	case n < 2:
		h.stop(session.Deconfigured, h.peer.Stop)
	default:
		h.stop(session.Notification{}, h.peer.Stop)
		return
	}
	if established && len(h.routes) > 0 {
		h.t.Errorf("the router has %v after the end", h.routes)
	}
}

// settleStopped checks all that has happened until the agent was stopped.
func (h *history) settleStopped() {
	h.t.Helper()
	h.settleWith(func(time.Time) {})
	if h.current != nil || h.next != nil || h.contender != nil {
		h.t.Error("connections are open after the end")
	}
}
