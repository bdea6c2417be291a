// SPDX-License-Identifier: Apache-2.0

package session

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/fake"
)

// exchange is a session with a router that the test is, over a connection in memory and in the time of synctest.
type exchange struct {
	t       *testing.T
	session *Session
	router  *fake.Conn
}

// exchangeMessages runs a test of a session. Goroutines that don't end fail it.
func exchangeMessages(t *testing.T, o Options, test func(*exchange)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		here, there := netip.AddrPortFrom(balancer.RouterID, 1024), netip.AddrPortFrom(router.Address, 179)
		ours, theirs := fake.Connect(here, there)
		e := &exchange{t, Begin(&Pending{Conn: ours}, o), theirs}
		t.Cleanup(func() {
			_ = theirs.Close()
			<-e.session.Ended()
		})
		e.next(wire.BGP_MSG_OPEN)
		test(e)
	})
}

// send sends a message of a type.
func (e *exchange) send(kind byte, body []byte) {
	e.t.Helper()
	m := binary.BigEndian.AppendUint16([]byte(string(marker)), uint16(headerSize+len(body)))
	if _, err := e.router.Write(append(append(m, kind), body...)); err != nil {
		e.t.Fatal(err)
	}
}

// take returns the messages that the session has sent once it waits for others.
func (e *exchange) take() (messages []*wire.BGPMessage) {
	e.t.Helper()
	synctest.Wait()
	open := e.session.Status().Open
	options := &wire.MarshallingOption{Use2ByteAS: open != nil && !open.longASN}
	for sent := e.router.Take(); len(sent) > 0; {
		size := binary.BigEndian.Uint16(sent[16:])
		m, err := wire.ParseBGPMessage(sent[:size], options)
		if err != nil {
			e.t.Fatalf("sent % x: %v", sent[:size], err)
		}
		messages, sent = append(messages, m), sent[size:]
	}
	return messages
}

// next is the one message of a type that the session has sent.
func (e *exchange) next(kind byte) *wire.BGPMessage {
	e.t.Helper()
	messages := e.take()
	if len(messages) != 1 || messages[0].Header.Type != kind {
		e.t.Fatalf("sent %d messages: %+v, want one of type %d", len(messages), messages, kind)
	}
	return messages[0]
}

// establishes completes the handshake.
func (e *exchange) establishes(capabilities ...wire.ParameterCapabilityInterface) {
	e.t.Helper()
	open, err := openFrom(router.ASN, capabilities...).Body.Serialize()
	if err != nil {
		e.t.Fatal(err)
	}
	e.send(wire.BGP_MSG_OPEN, open)
	e.next(wire.BGP_MSG_KEEPALIVE)
	e.send(wire.BGP_MSG_KEEPALIVE, nil)
}

// refused checks that the session has ended with one NOTIFICATION, and returns its code and subcode.
func (e *exchange) refused() (code, subcode uint8) {
	e.t.Helper()
	n := e.next(wire.BGP_MSG_NOTIFICATION).Body.(*wire.BGPNotification)
	if !e.router.Ended() {
		e.t.Error("the connection is open after the NOTIFICATION")
	}
	return n.ErrorCode, n.ErrorSubcode
}

// Errors in headers and OPENs have the subcodes of RFC 4271 §6.1 and §6.2.
func TestMessageErrors(t *testing.T) {
	header := func(size, kind byte, body ...byte) []byte {
		return append(append([]byte(string(marker)), 0, size, kind), body...)
	}
	open := []byte{4, 0xfd, 0xe8, 0, 90, 10, 0, 2, 1, 0}
	for name, c := range map[string]struct {
		sent []byte
		want [2]uint8
	}{
		"marker":             {append([]byte{0}, header(19, 4)[1:]...), [2]uint8{1, 1}},
		"size below 19":      {header(18, 4), [2]uint8{1, 2}},
		"short OPEN":         {header(28, 1, open[:9]...), [2]uint8{1, 2}},
		"short UPDATE":       {header(22, 2, 0, 0, 0), [2]uint8{1, 2}},
		"short NOTIFICATION": {header(20, 3, 6), [2]uint8{1, 2}},
		"long KEEPALIVE":     {header(20, 4, 0), [2]uint8{1, 2}},
		"unknown type":       {header(19, 77), [2]uint8{1, 3}},
		"version":            {header(29, 1, slices.Concat([]byte{3}, open[1:])...), [2]uint8{2, 1}},
		"AS":                 {header(29, 1, slices.Concat(open[:1], []byte{1, 1}, open[3:])...), [2]uint8{2, 2}},
		"identifier":         {header(29, 1, slices.Concat(open[:5], []byte{0, 0, 0, 0, 0})...), [2]uint8{2, 3}},
		"optional parameter": {header(32, 1, slices.Concat(open[:9], []byte{3, 77, 1, 0})...), [2]uint8{2, 4}},
		"hold time":          {header(29, 1, slices.Concat(open[:4], []byte{2}, open[5:])...), [2]uint8{2, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			exchangeMessages(t, Options{Local: balancer, Peer: router}, func(e *exchange) {
				if _, err := e.router.Write(c.sent); err != nil {
					t.Fatal(err)
				}
				if code, subcode := e.refused(); code != c.want[0] || subcode != c.want[1] {
					t.Errorf("NOTIFICATION %d/%d, want %v", code, subcode, c.want)
				}
			})
		})
	}
}

// While the peer's KEEPALIVE is awaited, it is sent KEEPALIVEs at the usual intervals (RFC 4271 §8.2.2, OpenConfirm), and
// has ten seconds from its OPEN on.
func TestOpenConfirm(t *testing.T) {
	peer := router
	peer.HoldTime = 3 * time.Second
	exchangeMessages(t, Options{Local: balancer, Peer: peer}, func(e *exchange) {
		time.Sleep(openTimeout - time.Second/2)
		body, _ := openFrom(router.ASN).Body.Serialize()
		e.send(wire.BGP_MSG_OPEN, body)
		e.next(wire.BGP_MSG_KEEPALIVE)
		for range 9 {
			time.Sleep(time.Second)
			e.next(wire.BGP_MSG_KEEPALIVE)
		}
		e.send(wire.BGP_MSG_KEEPALIVE, nil)
		synctest.Wait()
		if state := e.session.Status().State; state != bgp.Established {
			t.Error(state)
		}
	})
}

// Messages that don't restart the hold timer don't keep a session: those that arrive when it has expired are read for a
// tenth of a second.
func TestRefreshKeepsNoSession(t *testing.T) {
	exchangeMessages(t, Options{Local: balancer, Peer: router}, func(e *exchange) {
		e.establishes()
		time.Sleep(router.HoldTime)
		for range 2 * holdGrace / (20 * time.Millisecond) {
			e.send(wire.BGP_MSG_ROUTE_REFRESH, []byte{0, 1, 0, 1})
			time.Sleep(20 * time.Millisecond)
			if e.router.Ended() {
				return
			}
		}
		t.Error("the hold timer has not expired")
	})
}
