// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

// maxBody is the longest body of a message.
const maxBody = wire.BGP_MAX_MESSAGE_LENGTH - headerSize

// withRoutes are options by which a session announces a route of each family.
func withRoutes(t *testing.T, peer bgp.Peer) Options {
	return Options{Local: balancer, Peer: peer, OnOpen: func(s *Session) {
		if err := s.Announce([]bgp.Route{to("10.1.1.1/32", "10.0.2.11"), to("fd00:1::1/128", "fd00:2::11")}); err != nil {
			t.Error(err)
		}
	}}
}

// FuzzOpen shows that an OPEN either is confirmed and leads to a session, or is refused with one NOTIFICATION
// (RFC 4271 §6.2).
func FuzzOpen(f *testing.F) {
	for _, message := range []*wire.BGPMessage{
		openFrom(router.ASN), openFrom(router.ASN, wire.NewCapRouteRefresh(), wire.NewCapGracefulRestart(true, true, 120, nil)), openFrom(65055),
	} {
		body, _ := message.Body.Serialize()
		f.Add(body)
	}
	f.Add(capableOpen()[headerSize:])
	f.Add([]byte{4, 0xfd, 0xe8, 0, 2, 10, 0, 2, 1, 0})            // a hold time of 2 s
	f.Add([]byte{4, 0xfd, 0xe8, 0, 0, 10, 0, 2, 1, 0})            // no hold time
	f.Add([]byte{3, 0xfd, 0xe8, 0, 90, 10, 0, 2, 1, 0})           // version 3
	f.Add([]byte{4, 0xfd, 0xe8, 0, 90, 0, 0, 0, 0, 0})            // no identifier
	f.Add([]byte{4, 0xfd, 0xe8, 0, 90, 10, 0, 2, 1, 3, 77, 1, 0}) // another optional parameter
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) <= maxBody {
			exchangeMessages(t, withRoutes(t, router), func(e *exchange) { e.checkOpen(body) })
		}
	})
}

func (e *exchange) checkOpen(body []byte) {
	e.send(wire.BGP_MSG_OPEN, body)
	messages := e.take()
	if len(messages) != 1 {
		e.t.Fatalf("replies with %d messages: %+v", len(messages), messages)
	}
	if n, ok := messages[0].Body.(*wire.BGPNotification); ok {
		if n.ErrorCode != wire.BGP_ERROR_MESSAGE_HEADER_ERROR && n.ErrorCode != wire.BGP_ERROR_OPEN_MESSAGE_ERROR {
			e.t.Errorf("refuses the OPEN with NOTIFICATION %d/%d", n.ErrorCode, n.ErrorSubcode)
		}
		return
	}
	open := e.session.Status().Open
	hold := open.HoldTime
	if open.ASN != router.ASN || open.RouterID.IsUnspecified() || hold > 0 && hold < bgp.MinHoldTime || body[0] != 4 {
		e.t.Errorf("accepts %+v", open)
	}
	e.send(wire.BGP_MSG_KEEPALIVE, nil)
	var got []string
	for _, m := range e.take() {
		announced, withdrawn := contents(m.Body.(*wire.BGPUpdate))
		got = append(got, announced...)
		if len(withdrawn) > 0 {
			e.t.Errorf("withdraws %v", withdrawn)
		}
	}
	slices.Sort(got)
	if state := e.session.Status().State; state != bgp.Established || !slices.Equal(got, []string{"10.1.1.1/32", "fd00:1::1/128"}) {
		e.t.Errorf("%s, and has announced %v", state, got)
	}
}

// FuzzUpdateSession shows that each UPDATE of a reflector's client is handed over once, or ends the session with a
// NOTIFICATION of an UPDATE message error (RFC 7606).
func FuzzUpdateSession(f *testing.F) {
	f.Add(announcing(attributesOf(0x40, 5, 4, 0, 0, 0, 100)))
	f.Add(announcing(attributesOf(0x80, 14, 5, 0, 2, 1, 0, 0)))
	f.Add(announcing(attributesOf(0xc0, 8, 3, 1, 2, 3)))
	f.Add([]byte{0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1})
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0, 5, 32, 10, 1, 1, 1, 0, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxBody {
			return
		}
		var updates []*Update
		o := Options{Local: balancer, Peer: router, OnUpdate: func(_ *Session, u *Update) Notification {
			updates = append(updates, u)
			return Notification{}
		}}
		exchangeMessages(t, o, func(e *exchange) {
			e.establishes()
			e.take()
			e.send(wire.BGP_MSG_UPDATE, body)
			e.checkUpdate(&updates)
		})
	})
}

func (e *exchange) checkUpdate(updates *[]*Update) {
	if messages := e.take(); len(messages) > 0 {
		n, ok := messages[0].Body.(*wire.BGPNotification)
		if len(messages) > 1 || !ok || n.ErrorCode > wire.BGP_ERROR_UPDATE_MESSAGE_ERROR || len(*updates) > 0 {
			e.t.Errorf("%d UPDATEs handed over; replies %+v", len(*updates), messages)
		}
		return
	}
	if len(*updates) != 1 || e.session.Status().State != bgp.Established {
		e.t.Fatalf("%d UPDATEs handed over; %+v", len(*updates), e.session.Status())
	}
	u := (*updates)[0]
	all := slices.Clone(u.Withdrawn)
	for _, a := range u.Announced {
		if all = append(all, a.Prefixes...); len(a.Prefixes) == 0 || !a.NextHop.IsValid() {
			e.t.Errorf("%+v", a)
		}
	}
	for _, prefix := range all {
		if !prefix.IsValid() || prefix != prefix.Masked() {
			e.t.Errorf("prefix %s", prefix)
		}
	}
}

// FuzzNotification shows that a NOTIFICATION ends the session without a reply but for a bad length (RFC 4271 §6.1, §6.4),
// and that its reason can be shown to an operator.
func FuzzNotification(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{6, 2, 11, 'm', 'a', 'i', 'n', 't', 'e', 'n', 'a', 'n', 'c', 'e'})
	f.Add([]byte{6, 4, 200, 'x'})
	f.Add([]byte{6, 2, 2, 0xff, 0x1b})
	f.Add([]byte{2, 2, 0, 0})
	f.Add([]byte{5, 0})
	f.Add([]byte{77, 77})
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxBody {
			return
		}
		exchangeMessages(t, withRoutes(t, router), func(e *exchange) {
			e.establishes()
			e.take()
			e.send(wire.BGP_MSG_NOTIFICATION, body)
			if len(body) < 2 {
				if code, subcode := e.refused(); code != badLength.Code || subcode != badLength.Subcode {
					e.t.Errorf("NOTIFICATION %d/%d", code, subcode)
				}
				return
			}
			if messages := e.take(); len(messages) > 0 || !e.router.Ended() {
				e.t.Errorf("the connection isn't closed, or it replies %+v", messages)
			}
			<-e.session.Ended()
			status := e.session.Status()
			unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
			if !strings.HasPrefix(status.Reason, Received) || strings.ContainsFunc(status.Reason, unprintable) || status.Lost {
				e.t.Errorf("%+v", status)
			}
		})
	})
}

// FuzzRouteRefresh shows that a ROUTE-REFRESH is answered with the routes of its family, and ignored if the session has no
// such family (RFC 2918 §4).
func FuzzRouteRefresh(f *testing.F) {
	for _, body := range [][]byte{{0, 1, 0, 1}, {0, 2, 0, 1}, {0, 1, 0, 128}, {0, 1, 1, 1}, {0, 25, 0, 70}, {0, 1, 0}, {}, {0, 2, 0, 1, 0, 128}} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxBody {
			return
		}
		exchangeMessages(t, withRoutes(t, router), func(e *exchange) {
			e.establishes(wire.NewCapRouteRefresh())
			e.take()
			e.send(wire.BGP_MSG_ROUTE_REFRESH, body)
			if len(body) < 4 {
				if code, _ := e.refused(); code != wire.BGP_ERROR_ROUTE_REFRESH_MESSAGE_ERROR {
					e.t.Errorf("NOTIFICATION of code %d", code)
				}
				return
			}
			time.Sleep(2 * refreshInterval)
			want := ""
			switch [3]byte{body[0], body[1], body[3]} {
			case [3]byte{0, 1, 1}:
				want = "[10.1.1.1/32]"
			case [3]byte{0, 2, 1}:
				want = "[fd00:1::1/128]"
			}
			got := ""
			for _, m := range e.take() {
				announced, withdrawn := contents(m.Body.(*wire.BGPUpdate))
				got += fmt.Sprint(announced)
				if len(withdrawn) > 0 {
					e.t.Errorf("withdraws %v", withdrawn)
				}
			}
			if state := e.session.Status().State; got != want || state != bgp.Established {
				e.t.Errorf("%s, and answers %q, want %q", state, got, want)
			}
		})
	})
}
