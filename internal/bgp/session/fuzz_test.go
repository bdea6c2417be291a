// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// framed makes messages of fuzzed bytes, which would rarely have a valid header: each is a
// byte for the type, one for the length, and the body. The first byte of the input decides
// whether a handshake precedes them.
func framed(input []byte) (sent []byte) {
	if len(input) == 0 {
		return nil
	}
	if input[0]&1 != 0 {
		open, _ := openFrom(router.ASN).Serialize()
		sent = slices.Concat(open, keepalive)
	}
	if input[0]&2 != 0 {
		return append(sent, input[1:]...)
	}
	for input = input[1:]; len(input) >= 2; {
		body := input[2:min(len(input), 2+int(input[1]))]
		sent = binary.BigEndian.AppendUint16(append(sent, marker...), uint16(headerSize+len(body)))
		sent = append(append(sent, input[0]), body...)
		input = input[2+len(body):]
	}
	return sent
}

// FuzzSession shows that nothing that a router sends, through relay and library, ends the
// agent or the next session: each one ends with its connection, and routes can be announced
// afterwards.
func FuzzSession(f *testing.F) {
	open, _ := openFrom(router.ASN).Serialize()
	f.Add([]byte{0})
	f.Add([]byte{1, wire.BGP_MSG_UPDATE, 4, 0, 0, 0, 0, wire.BGP_MSG_ROUTE_REFRESH, 4, 0, 1, 0, 1})
	f.Add([]byte{1, wire.BGP_MSG_NOTIFICATION, 4, 6, 2, 1, 'x'})
	f.Add([]byte{1, wire.BGP_MSG_UPDATE, 10, 0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1, wire.BGP_MSG_OPEN, 1, 4})
	f.Add([]byte{0, wire.BGP_MSG_UPDATE, 4, 0, 0, 0, 0}) // before an OPEN
	f.Add([]byte{1, 9, 1, 0})
	f.Add(slices.Concat([]byte{2}, open, keepalive, open)) // a second OPEN
	f.Add(slices.Concat([]byte{0, wire.BGP_MSG_OPEN, byte(len(open) - headerSize)}, open[headerSize:], []byte{wire.BGP_MSG_KEEPALIVE, 0}))
	f.Add(slices.Concat([]byte{3}, open))
	p, err := NewPeer(f.Context(), balancer, router, func(*Session) {}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.Close)
	f.Fuzz(func(t *testing.T, input []byte) {
		endsWithConnection(t, input, func(ctx context.Context, conn *Pending) (*Session, error) {
			return p.Begin(ctx, conn, false)
		})
		route := to("10.1.1.1/32", "10.0.2.11")
		route.MED = new(uint32(len(input)))
		if err := p.Announce([]bgp.Route{route}); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzRouterSession is FuzzSession for a router of a reflector, whose OPEN is changed on its
// way to the library.
func FuzzRouterSession(f *testing.F) {
	for _, messages := range malformedOpens() {
		f.Add(append([]byte{2}, messages...))
	}
	f.Add([]byte{1, wire.BGP_MSG_OPEN, 1, 4})
	f.Add([]byte{1, wire.BGP_MSG_ROUTE_REFRESH, 4, 0, 1, 0, 1})
	f.Add([]byte{1, wire.BGP_MSG_UPDATE, 10, 0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1})
	f.Add([]byte{1, wire.BGP_MSG_NOTIFICATION, 2, 6, 4})
	f.Add(slices.Concat([]byte{2}, capableOpen(), keepalive))
	i := reflectorInstance(f)
	f.Fuzz(func(t *testing.T, input []byte) { endsWithConnection(t, input, beginRouter(i)) })
}

// endsWithConnection begins a session whose peer sends the messages of framed and closes the
// connection, and waits until the session has ended.
func endsWithConnection(t *testing.T, input []byte, begin func(context.Context, *Pending) (*Session, error)) *Session {
	t.Helper()
	ours, theirs := connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	s, err := begin(ctx, &Pending{TCPConn: ours})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = theirs.Write(framed(input))
		_ = theirs.CloseWrite()
		_, _ = io.Copy(io.Discard, theirs)
	}()
	select {
	case <-s.Ended():
	case <-ctx.Done():
		t.Fatal("session does not end with its connection")
	}
	return s
}

// reflectorInstance starts the library for a reflector.
func reflectorInstance(t testing.TB) *Instance {
	t.Helper()
	i, err := Start(t.Context(), balancer, func(Change) {}, func(netip.Addr) {}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

// beginRouter begins sessions of a reflector with a router.
func beginRouter(i *Instance) func(context.Context, *Pending) (*Session, error) {
	reflection := &bgp.Reflection{Local: balancer, ClusterID: balancer.RouterID}
	return func(ctx context.Context, conn *Pending) (*Session, error) {
		return i.BeginRouter(ctx, reflection, &router, conn, false)
	}
}

// capableOpen is an OPEN with graceful restart and several paths.
func capableOpen() []byte {
	paths := wire.NewCapAddPath([]*wire.CapAddPathTuple{wire.NewCapAddPathTuple(wire.RF_IPv4_UC, wire.BGP_ADD_PATH_RECEIVE)})
	open, _ := openFrom(router.ASN, wire.NewCapGracefulRestart(true, true, 120, nil), paths).Serialize()
	return open
}

// malformedOpens are messages that the parser of OPENs rejects.
func malformedOpens() map[string][]byte {
	open, _ := openFrom(router.ASN).Serialize()
	parameters := bytes.Clone(open)
	parameters[headerSize+9]++
	short := slices.Concat(marker, []byte{0, headerSize + 1, wire.BGP_MSG_OPEN, 4})
	return map[string][]byte{
		"short body":                  short,
		"length of parameters":        parameters,
		"short body after valid OPEN": slices.Concat(open, short),
	}
}

// A malformed OPEN of a router ends its session, and nothing else.
func TestMalformedOpenOfRouter(t *testing.T) {
	for name, messages := range malformedOpens() {
		t.Run(name, func(t *testing.T) {
			s := endsWithConnection(t, append([]byte{2}, messages...), beginRouter(reflectorInstance(t)))
			if got, want := s.Status().Reason, "received a bad message: "; !strings.HasPrefix(got, want) {
				t.Errorf("ended: %s, want %s", got, want)
			}
		})
	}
}
