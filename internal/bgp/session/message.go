// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"unicode"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
)

// headerSize is the size of a message's header (RFC 4271 §4.1).
const headerSize = wire.BGP_HEADER_LENGTH

// marker begins every message.
var marker = bytes.Repeat([]byte{0xff}, 16)

// keepalive is a KEEPALIVE message.
var keepalive = append(bytes.Clone(marker), 0, headerSize, wire.BGP_MSG_KEEPALIVE)

// shortest are the sizes of the shortest messages whose sizes are checked before they are parsed (RFC 4271 §4).
var shortest = map[byte]int{
	wire.BGP_MSG_OPEN: headerSize + 10, wire.BGP_MSG_UPDATE: headerSize + 4, wire.BGP_MSG_NOTIFICATION: headerSize + 2,
}

// readMessage reads a message, or the part of it that came before an error: a Notification if the header is malformed
// (RFC 4271 §6.1).
func readMessage(in io.Reader) ([]byte, error) {
	message := make([]byte, headerSize)
	if n, err := io.ReadFull(in, message); err != nil {
		return message[:n], err
	}
	size, kind := int(binary.BigEndian.Uint16(message[16:])), message[18]
	switch {
	case !bytes.Equal(message[:16], marker):
		return message, notSynchronized
	case size < max(headerSize, shortest[kind]), size > wire.BGP_MAX_MESSAGE_LENGTH,
		size > headerSize && kind == wire.BGP_MSG_KEEPALIVE:
		return message, badLength
	}
	message = append(message, make([]byte, size-headerSize)...)
	_, err := io.ReadFull(in, message[headerSize:])
	return message, err
}

// parse is the codec's parser. A panic in it is an error.
func parse(message []byte, options *wire.MarshallingOption) (m *wire.BGPMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("malformed message: %v", r)
		}
	}()
	return wire.ParseBGPMessage(message, options)
}

// Notification is why a session is ended (RFC 4271 §4.5). The zero Notification isn't sent.
type Notification struct {
	Code, Subcode uint8
	// Text is for people, in a Cease of the kinds that have one (RFC 9003).
	Text string
}

// The notifications of RFC 4486 and RFC 9384 that are sent here.
var (
	AdministrativeShutdown = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 2}
	Deconfigured           = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 3}
	ConfigurationChanged   = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 6}
	Collision              = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 7}
	BFDDown                = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 10}
)

var (
	// notSynchronized is sent for a message that doesn't begin with the marker, badLength for one that can't be read,
	// outOfOrder for one that the session's state doesn't allow.
	notSynchronized = Notification{Code: wire.BGP_ERROR_MESSAGE_HEADER_ERROR, Subcode: 1}
	badLength       = Notification{Code: wire.BGP_ERROR_MESSAGE_HEADER_ERROR, Subcode: 2}
	outOfOrder      = Notification{Code: wire.BGP_ERROR_FSM_ERROR}
	// badOpen and badUpdate are sent for malformed ones, badPeerAS for an unexpected ASN, badIdentifier for an
	// impossible router ID, badParameter for an optional parameter that isn't known.
	badOpen       = Notification{Code: wire.BGP_ERROR_OPEN_MESSAGE_ERROR}
	badPeerAS     = Notification{Code: wire.BGP_ERROR_OPEN_MESSAGE_ERROR, Subcode: 2}
	badIdentifier = Notification{Code: wire.BGP_ERROR_OPEN_MESSAGE_ERROR, Subcode: 3}
	badParameter  = Notification{Code: wire.BGP_ERROR_OPEN_MESSAGE_ERROR, Subcode: 4}
	badUpdate     = Notification{Code: wire.BGP_ERROR_UPDATE_MESSAGE_ERROR, Subcode: 1}
)

// The notifications of UPDATEs that a reflector can't take.
var (
	TooManyPrefixes = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 1}
	OutOfResources  = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 8}
)

// names are the names of a code's subcodes; subcode 0 names the code itself.
var names = map[uint8][]string{
	1: {"malformed message", "connection not synchronised", "bad message length", "bad message type"},
	2: {
		"malformed OPEN", "unsupported version", "bad peer AS", "bad BGP identifier", "unsupported optional parameter",
		"", "unacceptable hold time", "unsupported capability",
	},
	3: {"malformed UPDATE"},
	4: {"hold timer expired"},
	5: {"message out of order"},
	6: {
		"cease", "too many prefixes", "administrative shutdown", "peer de-configured", "administrative reset",
		"connection rejected", "configuration changed", "connection collision", "out of resources", "hard reset", "BFD down",
	},
	7: {"malformed ROUTE-REFRESH"},
}

// Error is for operators: "administrative shutdown: maintenance". A Notification is the error that ends a session.
func (n Notification) Error() (text string) {
	switch known := names[n.Code]; {
	case len(known) == 0:
		text = fmt.Sprintf("notification %d/%d", n.Code, n.Subcode)
	case int(n.Subcode) < len(known) && known[n.Subcode] != "":
		text = known[n.Subcode]
	default:
		text = fmt.Sprintf("%s (subcode %d)", known[0], n.Subcode)
	}
	if n.Text != "" {
		text += ": " + n.Text
	}
	return text
}

// hasText reports whether the notification carries a text (RFC 9003 §2).
func (n Notification) hasText() bool {
	return n.Code == wire.BGP_ERROR_CEASE && (n.Subcode == 2 || n.Subcode == 4)
}

// message is the notification as it is sent.
func (n Notification) message() []byte {
	var data []byte
	if n.hasText() {
		text := n.Text[:min(len(n.Text), 255)]
		data = append([]byte{byte(len(text))}, text...)
	}
	m := binary.BigEndian.AppendUint16(bytes.Clone(marker), uint16(headerSize+2+len(data)))
	return append(append(m, wire.BGP_MSG_NOTIFICATION, n.Code, n.Subcode), data...)
}

// readNotification reads a peer's notification, with the printable characters of
// its text.
func readNotification(m *wire.BGPNotification) Notification {
	n := Notification{Code: m.ErrorCode, Subcode: m.ErrorSubcode}
	if n.hasText() && len(m.Data) > 0 {
		text := m.Data[1:min(len(m.Data), 1+int(m.Data[0]))]
		n.Text = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return ' '
		}, string(text))
	}
	return n
}

// Received begins the reason of a session that the peer has ended with a notification.
const Received = "received NOTIFICATION: "

// describeReceived explains a peer's notification.
func (s *Session) describeReceived(n Notification) string {
	text := n.Error()
	switch {
	case n == badPeerAS:
		text = fmt.Sprintf("bad peer AS: the peer does not accept AS %d", s.o.Local.ASN)
		if open := s.Status().Open; open != nil {
			text += fmt.Sprintf(", and is AS %d itself", open.ASN)
		}
	case n.Code == wire.BGP_ERROR_FSM_ERROR: // FRR's reply in the first second of a neighbour's life
		text = "finite state machine error: the peer may not be ready yet"
	}
	return Received + text
}

// describeSent explains the notification that this side ends the session with.
func (s *Session) describeSent(n Notification) string {
	state, open := s.Status().State, s.Status().Open
	switch {
	case n.Code == wire.BGP_ERROR_HOLD_TIMER_EXPIRED && state != bgp.Established:
		cause := "it may hang, or use TTL security"
		if s.o.Peer.TTLSecurity > 0 {
			cause = "it may be further away than TTL security allows, or not use TTL security"
		}
		return "the peer does not respond: " + cause
	case n == badPeerAS && open != nil:
		return fmt.Sprintf("bad peer AS: the peer is AS %d, configured is AS %d", open.ASN, s.o.Peer.ASN)
	case n == badIdentifier && open != nil && open.RouterID == s.o.Local.RouterID:
		return fmt.Sprintf("bad BGP identifier %s: it is this node's own", open.RouterID)
	case n.Code == wire.BGP_ERROR_HOLD_TIMER_EXPIRED:
		return "hold timer expired: the peer was silent"
	}
	return "received a bad message: " + n.Error()
}

// connectionError is the reason of a session whose connection failed.
func connectionError(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the peer closed the connection"
	case errors.Is(err, net.ErrClosed):
		return errEnded.Error()
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return "the peer reset the connection"
	}
	if number, ok := errors.AsType[unix.Errno](err); ok {
		return number.Error()
	}
	return err.Error()
}
