// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"encoding/binary"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
	"fairlead.io/fairlead/test/fake"
)

// The times of the session (RFC 4271 §10) in the model: openWait is for the peer's OPEN and then for its KEEPALIVE, grace is
// for messages that weren't read when the hold timer expired, refreshPause is between two answers to requests for all routes.
const (
	openWait     = 10 * time.Second
	grace        = 100 * time.Millisecond
	refreshPause = time.Second
)

// link is the router's end of a connection, and the model of the speaker's session over it.
type link struct {
	conn *fake.Conn
	// received is written by the link's reader; a nil message is the end.
	received []arrival

	state bgp.SessionState
	begun bool // the speaker has sent its OPEN
	open  openOf
	hold  time.Duration
	// deadline is when the speaker gives up; zero for never.
	deadline                      time.Time
	alive, established, nextAlive time.Time
	silent, probed                bool
	// want is the NOTIFICATION that ends the session, closing is set if it ends without one.
	want    *session.Notification
	closing bool
	ends    map[bool]int       // End-of-RIBs by family: IPv6 or not
	asked   map[bool]time.Time // requests for the routes of a family that aren't answered yet
	vain    map[bool]bool      // such requests that may have been answered without a route
	answer  time.Time          // when a route was last sent again
}

// arrival is a message that has arrived at the router.
type arrival struct {
	at      time.Time
	message []byte
}

// learned is a route in the router's Adj-RIB-In.
type learned struct {
	med   uint32
	stale bool
}

// read reads the speaker's messages until the connection ends.
func (h *history) read(l *link) {
	for {
		m := make([]byte, 19)
		_, err := io.ReadFull(l.conn, m)
		if err == nil {
			m = append(m, make([]byte, binary.BigEndian.Uint16(m[16:])-19)...)
			_, err = io.ReadFull(l.conn, m[19:])
		}
		h.mu.Lock()
		if err != nil {
			m = nil
		}
		l.received = append(l.received, arrival{time.Now(), m})
		h.mu.Unlock()
		if err != nil {
			_ = l.conn.Close()
			return
		}
	}
}

// judge checks all messages that have arrived, in their order.
func (h *history) judge() {
	for {
		l, a := h.earliestArrival()
		if l == nil {
			break
		}
		if a.message == nil {
			h.ended(l, a.at)
			continue
		}
		if !l.answer.IsZero() && a.at.After(l.answer) {
			h.answered(l)
		}
		switch a.message[18] {
		case typeOpen:
			h.judgeOpen(l, a)
		case typeKeepalive:
			h.judgeKeepalive(l, a.at)
		case typeUpdate:
			h.judgeUpdate(l, a)
		case typeNotification:
			h.judgeNotification(l, a)
		default:
			h.t.Fatalf("a message of type %d", a.message[18])
		}
	}
	if l := h.current; l != nil && !l.answer.IsZero() {
		h.answered(l)
	}
}

// earliestArrival removes the first arrival on any link; the link is nil if there is none.
func (h *history) earliestArrival() (first *link, a arrival) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range []*link{h.current, h.next, h.contender} {
		if l != nil && len(l.received) > 0 && (first == nil || l.received[0].at.Before(a.at)) {
			first, a = l, l.received[0]
		}
	}
	if first != nil {
		first.received = first.received[1:]
	}
	return first, a
}

// judgeOpen checks the speaker's OPEN: hold time, and graceful restart with the R bit until a session was established and
// with the F bit (RFC 4724 §3).
func (h *history) judgeOpen(l *link, a arrival) {
	if l.begun {
		h.t.Fatal("a second OPEN")
	}
	if l.begun = true; l == h.next {
		h.begins(l, a.at)
	}
	m := a.message
	if hold := time.Duration(binary.BigEndian.Uint16(m[22:])) * time.Second; hold != h.config.HoldTime || binary.BigEndian.Uint16(m[20:]) != 65021 {
		h.t.Errorf("OPEN % x", m)
	}
	var want []byte
	if h.config.RestartTime > 0 {
		flags := byte(0)
		if h.restarted {
			flags = 0x80
		}
		seconds := byte(h.config.RestartTime / time.Second)
		want = []byte{flags, seconds, 0, 1, 1, 0x80, 0, 2, 1, 0x80}
	}
	if got := readCapabilities(m)[64]; !slices.Equal(got, want) {
		h.t.Errorf("graceful restart % x, want % x", got, want)
	}
}

// judgeKeepalive checks the time since the last KEEPALIVE: a third of the hold time (RFC 4271 §4.4), and not below a second.
func (h *history) judgeKeepalive(l *link, at time.Time) {
	if l.state != bgp.OpenConfirm && l.state != bgp.Established {
		h.t.Errorf("KEEPALIVE in %s", l.state)
	}
	if l.probed {
		l.probed = false // RFC 4271 has no such KEEPALIVE
		return
	}
	if since := at.Sub(l.alive); !l.alive.IsZero() && (l.hold == 0 || since > l.hold/3 || since < time.Second) {
		h.t.Errorf("KEEPALIVE after %s with a hold time of %s", since, l.hold)
	}
	l.alive = at
}

func (h *history) judgeUpdate(l *link, a arrival) {
	if l.state != bgp.Established {
		h.t.Errorf("UPDATE in %s", l.state)
	}
	announced, withdrawn := readUpdate(a.message)
	if len(announced) == 0 && len(withdrawn) == 0 {
		six := len(a.message) > 23
		l.ends[six]++
		maps.DeleteFunc(h.routes, func(p netip.Prefix, r learned) bool { return r.stale && p.Addr().Is6() == six })
		if got, want := h.fresh(six), h.wants(l, six); l.ends[six] > 1 || !l.open.graceful || h.config.RestartTime == 0 || !maps.Equal(got, want) {
			h.t.Errorf("End-of-RIB %d with %v, want %v", l.ends[six], got, want)
		}
	}
	for _, prefix := range withdrawn {
		if r, ok := h.routes[prefix]; !ok || r.stale {
			h.t.Errorf("withdraws %s, which it hasn't announced", prefix)
		}
		delete(h.routes, prefix)
	}
	for prefix, med := range announced {
		six := prefix.Addr().Is6()
		if six && !l.open.six {
			h.t.Errorf("announces %s to a router without IPv6", prefix)
		}
		if r, ok := h.routes[prefix]; ok && !r.stale && r.med == med {
			if l.asked[six].IsZero() {
				h.t.Errorf("announces %s again", prefix)
			}
			l.answer = a.at
		}
		h.routes[prefix] = learned{med: med}
	}
}

// answered notes that the requests for all routes are answered.
func (h *history) answered(l *link) {
	clear(l.asked)
	l.answer = time.Time{}
}

func (h *history) judgeNotification(l *link, a arrival) {
	if late := a.at.Sub(l.deadline); l.want == nil && !l.deadline.IsZero() && late >= 0 && late <= grace {
		l.want = &session.Notification{Code: 4}
	}
	code, subcode := a.message[19], a.message[20]
	if l.want == nil || code != l.want.Code || subcode != l.want.Subcode {
		h.t.Errorf("NOTIFICATION %d/%d in %s, want %v; deadline %s ago", code, subcode, l.state, l.want, a.at.Sub(l.deadline))
	}
	l.closing = true
	if l == h.current {
		clear(h.routes) // RFC 4271 §8.2.2: graceful restart is for a connection that is lost
	}
}

// fresh are the router's routes of a family that aren't stale.
func (h *history) fresh(six bool) map[netip.Prefix]uint32 {
	routes := make(map[netip.Prefix]uint32)
	for prefix, r := range h.routes {
		if !r.stale && prefix.Addr().Is6() == six {
			routes[prefix] = r.med
		}
	}
	return routes
}

// wants are the routes of a family that the router is to have over a link.
func (h *history) wants(l *link, six bool) map[netip.Prefix]uint32 {
	routes := make(map[netip.Prefix]uint32)
	for prefix, med := range h.wanted {
		if prefix.Addr().Is6() == six && (!six || l.open.six) {
			routes[prefix] = med
		}
	}
	return routes
}

// checkEstablished checks a session that waits for messages: the router has exactly the wanted routes, stale ones only before
// End-of-RIB, and requests for routes are answered within a second.
func (h *history) checkEstablished(l *link, now time.Time) {
	graceful := l.open.graceful && h.config.RestartTime > 0
	for _, six := range []bool{false, true} {
		if got, want := h.fresh(six), h.wants(l, six); !maps.Equal(got, want) {
			h.t.Errorf("the router has %v, want %v", got, want)
		}
		if asked := l.asked[six]; !asked.IsZero() && now.Sub(asked) > refreshPause {
			if !l.vain[six] {
				h.t.Errorf("a ROUTE-REFRESH isn't answered after %s", now.Sub(asked))
			}
			delete(l.asked, six)
		}
		ends := 0
		if graceful && (!six || l.open.six) {
			ends = 1
		}
		if l.ends[six] != ends {
			h.t.Errorf("%d End-of-RIBs, want %d", l.ends[six], ends)
		}
	}
}

// check checks a link that waits for messages against the model.
func (h *history) check(l *link) {
	now := time.Now()
	if !l.deadline.IsZero() && now.Sub(l.deadline) > grace {
		h.t.Errorf("%s: not ended %s after its deadline", l.state, now.Sub(l.deadline))
	}
	if l.want != nil || l.closing {
		h.t.Errorf("not ended, want NOTIFICATION %v", l.want)
	}
	if l.hold > 0 && l.state != bgp.OpenSent && now.Sub(l.alive) > l.hold/3 {
		h.t.Errorf("no KEEPALIVE for %s with a hold time of %s", now.Sub(l.alive), l.hold)
	}
	if l.state == bgp.Established {
		h.checkEstablished(l, now)
	}
}
