// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

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

// FuzzSession shows that nothing that a peer sends ends the process: a session ends with its connection. The second byte of
// the input decides whether the peer is a reflector's client, whose UPDATEs are read.
func FuzzSession(f *testing.F) {
	open, _ := openFrom(router.ASN).Serialize()
	f.Add([]byte{0})
	f.Add([]byte{1, wire.BGP_MSG_UPDATE, 4, 0, 0, 0, 0, wire.BGP_MSG_ROUTE_REFRESH, 4, 0, 1, 0, 1})
	f.Add([]byte{1, wire.BGP_MSG_NOTIFICATION, 4, 6, 2, 1, 'x'})
	f.Add([]byte{1, wire.BGP_MSG_UPDATE, 10, 0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1, wire.BGP_MSG_OPEN, 1, 4})
	f.Add([]byte{0, wire.BGP_MSG_UPDATE, 4, 0, 0, 0, 0}) // before an OPEN
	f.Add([]byte{0, 9, 1, 0})
	f.Add([]byte{1, wire.BGP_MSG_NOTIFICATION, 2, 3, 11})
	f.Add(slices.Concat([]byte{2}, open, keepalive, open)) // a second OPEN
	f.Add(slices.Concat([]byte{3}, open))
	f.Add(slices.Concat([]byte{2}, capableOpen(), keepalive))
	f.Add(append([]byte{2}, bytes.Repeat([]byte{0xff}, 40)...))
	for _, messages := range malformedOpens() {
		f.Add(append([]byte{2}, messages...))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		for _, client := range []bool{false, true} {
			endsWithConnection(t, input, client)
		}
	})
}

// FuzzUpdate shows that the paths of an UPDATE are either withdrawn or announced, or end the session.
func FuzzUpdate(f *testing.F) {
	f.Add(announcing(attributesOf(0x40, 5, 4, 0, 0, 0, 100)), true)
	f.Add(announcing(attributesOf(0x80, 14, 5, 0, 2, 1, 0, 0)), true)
	f.Add(announcing(attributesOf(0xc0, 8, 3, 1, 2, 3)), false)
	f.Add([]byte("\x00\x00\x00\x16A \x010A \x000\x03\x00\n00000000000"), false) // a NEXT_HOP without an address
	agreed := negotiated{local: balancer, external: true}
	f.Fuzz(func(t *testing.T, body []byte, longASN bool) {
		if len(body) > wire.BGP_MAX_MESSAGE_LENGTH-headerSize {
			return
		}
		agreed.longASN = longASN
		u, err := agreed.readUpdate(message(body))
		if _, ok := errors.AsType[Notification](err); err != nil && !ok {
			t.Error(err)
		}
		if err == nil {
			for _, a := range u.Announced {
				if len(a.Prefixes) == 0 || !a.NextHop.IsValid() {
					t.Errorf("%+v", a)
				}
			}
		}
	})
}

// endsWithConnection begins a session whose peer sends the messages of framed and closes the
// connection, and waits until the session has ended.
func endsWithConnection(t *testing.T, input []byte, client bool) *Session {
	t.Helper()
	ours, theirs := connect(t)
	o := Options{Local: balancer, Peer: router, Paths: !client}
	if client {
		o.OnUpdate = func(*Session, *Update) Notification { return Notification{} }
	}
	s := Begin(&Pending{Conn: ours}, o)
	go func() {
		_, _ = theirs.Write(framed(input))
		_ = theirs.CloseWrite()
		_, _ = io.Copy(io.Discard, theirs)
	}()
	await.Closed(t, "the session's end with its connection", s.Ended())
	return s
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

// A malformed OPEN of a router ends its session (RFC 4271 §6.2).
func TestMalformedOpen(t *testing.T) {
	for name, messages := range malformedOpens() {
		t.Run(name, func(t *testing.T) {
			s := endsWithConnection(t, append([]byte{2}, messages...), false)
			if got, want := s.Status().Reason, "received a bad message: "; !strings.HasPrefix(got, want) {
				t.Errorf("ended: %s, want %s", got, want)
			}
		})
	}
}
