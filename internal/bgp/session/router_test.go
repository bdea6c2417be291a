// SPDX-License-Identifier: Apache-2.0

package session

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// The two ends.
var (
	balancer = bgp.Local{ASN: 65021, RouterID: netip.MustParseAddr("10.0.2.11")}
	router   = bgp.Peer{
		Address: netip.MustParseAddr("127.0.0.1"), ASN: 65000, HoldTime: 90 * time.Second, RestartTime: time.Minute,
	}
)

// dialogue is a session with a router that the test is.
type dialogue struct {
	t       *testing.T
	session *Session
	router  *net.TCPConn
	options *wire.MarshallingOption // by which the router parses messages
}

// connect returns both ends of a connection.
func connect(t *testing.T) (ours, theirs *net.TCPConn) {
	t.Helper()
	ours, theirs, err := connected()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	return ours, theirs
}

func connected() (ours, theirs *net.TCPConn, err error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if ours, err = net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr)); err != nil {
		return nil, nil, err
	}
	if theirs, err = l.AcceptTCP(); err != nil {
		ours.Close()
	}
	return ours, theirs, err
}

// begin begins a session with a peer, in whose handshake routes are announced.
func begin(t *testing.T, peer bgp.Peer, routes ...bgp.Route) *dialogue {
	t.Helper()
	return beginWith(t, Options{Local: balancer, Peer: peer, OnOpen: func(s *Session) {
		if err := s.Announce(routes); err != nil {
			t.Error(err)
		}
	}})
}

func beginWith(t *testing.T, o Options) *dialogue {
	t.Helper()
	ours, theirs := connect(t)
	session := Begin(&Pending{Conn: ours}, o)
	t.Cleanup(func() { session.Drop("the test is over") })
	return &dialogue{t, session, theirs, &wire.MarshallingOption{}}
}

// answer completes the handshake, and returns the OPEN of this end.
func (d *dialogue) answer(capabilities ...wire.ParameterCapabilityInterface) *wire.BGPOpen {
	d.t.Helper()
	open := d.next().Body.(*wire.BGPOpen)
	d.send(openFrom(65000, capabilities...))
	if _, ok := d.next().Body.(*wire.BGPKeepAlive); !ok {
		d.t.Fatal("no KEEPALIVE after OPEN")
	}
	d.send(wire.NewBGPKeepAliveMessage())
	d.await(d.session.Established(), "established")
	return open
}

// openFrom is the router's OPEN.
func openFrom(asn uint32, capabilities ...wire.ParameterCapabilityInterface) *wire.BGPMessage {
	capabilities = append(capabilities, wire.NewCapFourOctetASNumber(asn),
		wire.NewCapMultiProtocol(wire.RF_IPv4_UC), wire.NewCapMultiProtocol(wire.RF_IPv6_UC))
	m, _ := wire.NewBGPOpenMessage(uint16(asn), 90, netip.MustParseAddr("10.0.2.1"),
		[]wire.OptionParameterInterface{wire.NewOptionParameterCapability(capabilities)})
	return m
}

// send sends a message to this end.
func (d *dialogue) send(m *wire.BGPMessage) {
	d.t.Helper()
	b, err := m.Serialize()
	if err != nil {
		d.t.Fatal(err)
	}
	d.sendBytes(b)
}

func (d *dialogue) sendBytes(b []byte) {
	d.t.Helper()
	if _, err := d.router.Write(b); err != nil {
		d.t.Fatal(err)
	}
}

// next is the next message from this end.
func (d *dialogue) next() *wire.BGPMessage {
	d.t.Helper()
	m := d.nextUntil(time.Now().Add(await.Patience))
	if m == nil {
		d.t.Fatal("no message")
	}
	return m
}

// nextUntil is the next message, or nil if none comes before a deadline.
func (d *dialogue) nextUntil(deadline time.Time) *wire.BGPMessage {
	d.t.Helper()
	_ = d.router.SetReadDeadline(deadline)
	b := make([]byte, headerSize)
	if _, err := io.ReadFull(d.router, b); err != nil {
		return nil
	}
	h := &wire.BGPHeader{}
	if err := h.DecodeFromBytes(b); err != nil {
		d.t.Fatal(err)
	}
	body := make([]byte, h.Len-headerSize)
	if _, err := io.ReadFull(d.router, body); err != nil {
		d.t.Fatal(err)
	}
	m, err := wire.ParseBGPBody(h, body, d.options)
	if err != nil {
		d.t.Fatal(err)
	}
	return m
}

// update is the next UPDATE that isn't the end of the routes.
func (d *dialogue) update() *wire.BGPUpdate {
	d.t.Helper()
	for {
		if u, ok := d.next().Body.(*wire.BGPUpdate); ok {
			if end, _ := u.IsEndOfRib(); !end {
				return u
			}
		}
	}
}

// await waits until a channel is closed.
func (d *dialogue) await(c <-chan struct{}, what string) {
	d.t.Helper()
	select {
	case <-c:
	case <-time.After(await.Patience):
		d.t.Fatalf("not %s: %s", what, d.session.Status().Reason)
	}
}

// eventually waits until a condition holds.
func (d *dialogue) eventually(what string, holds func() bool) {
	d.t.Helper()
	await.True(d.t, what, holds)
}

// ends waits until the session has ended, for a reason.
func (d *dialogue) ends(reason string) {
	d.t.Helper()
	d.await(d.session.Ended(), "ended")
	if got := d.session.Status().Reason; got != reason {
		d.t.Errorf("ended: %s, want %s", got, reason)
	}
}

// to is a route to a prefix by a next hop.
func to(prefix, hop string) bgp.Route {
	return bgp.Route{Prefix: netip.MustParsePrefix(prefix), NextHop: netip.MustParseAddr(hop)}
}
