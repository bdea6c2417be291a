// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
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

// readMessage reads a message. A malformed header is returned with the error.
func readMessage(in io.Reader) ([]byte, error) {
	message := make([]byte, headerSize)
	if _, err := io.ReadFull(in, message); err != nil {
		return nil, err
	}
	size, kind, limit := int(binary.BigEndian.Uint16(message[16:])), message[18], wire.BGP_MAX_MESSAGE_LENGTH
	if kind == wire.BGP_MSG_UPDATE {
		limit = wire.BGP_MAX_EXTENDED_MESSAGE_LENGTH // RFC 8654
	}
	if !bytes.Equal(message[:16], marker) || size < headerSize || size > limit ||
		size == headerSize && kind != wire.BGP_MSG_KEEPALIVE {
		return message, errMalformed
	}
	message = append(message, make([]byte, size-headerSize)...)
	_, err := io.ReadFull(in, message[headerSize:])
	return message, err
}

// parse is the library's parser. A panic in it is an error.
func parse(message []byte, options *wire.MarshallingOption) (m *wire.BGPMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("malformed message: %v", r)
		}
	}()
	return wire.ParseBGPMessage(message, options)
}

// Open has the contents of a peer's OPEN message (RFC 4271 §4.2).
type Open struct {
	ASN      uint32
	RouterID netip.Addr
	// HoldTime is the peer's proposal.
	HoldTime time.Duration
	// IPv4 and IPv6 are set for the families that it accepts, IPv4OverIPv6 if it
	// accepts IPv4 prefixes with IPv6 next hops (RFC 8950).
	IPv4, IPv6, IPv4OverIPv6 bool
	// GracefulRestart is set if it keeps routes over a restart (RFC 4724).
	GracefulRestart bool

	longASN bool // ASNs have 32 bits (RFC 6793)
}

// The flags of the graceful restart capability (RFC 4724 §3).
const (
	restartState    = 0x8  // of the four bits before the time
	forwardingState = 0x80 // of a family
)

// readOpen reads an OPEN message.
func readOpen(m *wire.BGPOpen) *Open {
	o := &Open{ASN: uint32(m.MyAS), RouterID: m.ID, HoldTime: time.Duration(m.HoldTime) * time.Second}
	multiprotocol := false
	for _, c := range capabilities(m) {
		switch c := c.(type) {
		case *wire.CapMultiProtocol:
			multiprotocol = true
			o.IPv4 = o.IPv4 || c.CapValue == wire.RF_IPv4_UC
			o.IPv6 = o.IPv6 || c.CapValue == wire.RF_IPv6_UC
		case *wire.CapFourOctetASNumber:
			o.ASN, o.longASN = c.CapValue, true
		case *wire.CapGracefulRestart:
			o.GracefulRestart = true
		case *wire.CapExtendedNexthop:
			for _, t := range c.Tuples {
				if t.NLRIAFI == wire.AFI_IP && t.NLRISAFI == uint16(wire.SAFI_UNICAST) && t.NexthopAFI == wire.AFI_IP6 {
					o.IPv4OverIPv6 = true
				}
			}
		}
	}
	if !multiprotocol { // RFC 4760 §8: IPv4 only
		o.IPv4 = true
	}
	return o
}

// capabilities returns the capabilities of all optional parameters.
func capabilities(m *wire.BGPOpen) (all []wire.ParameterCapabilityInterface) {
	for _, p := range m.OptParams {
		if p, ok := p.(*wire.OptionParameterCapability); ok {
			all = append(all, p.Capability...)
		}
	}
	return all
}

// rewriteOpen changes the library's OPEN. The library ties the F bit ("forwarding
// state preserved") to its own restart, and then holds routes back until all peers
// have sent theirs. Here the kernel forwards packets whatever happens to sessions, and
// no routes are learnt: the F bit is always set, and the R bit in the first session
// after a start. The library has no hold time of 0 either. Without a restart time, routers
// of a reflector don't get the capability, which the library needs for its End-of-RIB.
func rewriteOpen(message []byte, restarted bool, peer *bgp.Peer) ([]byte, error) {
	m, err := parse(message, nil)
	if err != nil {
		return nil, err
	}
	open := m.Body.(*wire.BGPOpen)
	if peer.HoldTime == 0 {
		open.HoldTime = 0
	}
	if peer.RestartTime == 0 {
		open.OptParams = slices.DeleteFunc(open.OptParams, func(o wire.OptionParameterInterface) bool {
			p, ok := o.(*wire.OptionParameterCapability)
			if ok {
				p.Capability = slices.DeleteFunc(p.Capability, func(c wire.ParameterCapabilityInterface) bool {
					return c.Code() == wire.BGP_CAP_GRACEFUL_RESTART
				})
			}
			return ok && len(p.Capability) == 0
		})
	}
	for _, c := range capabilities(open) {
		c, ok := c.(*wire.CapGracefulRestart)
		if !ok {
			continue
		}
		if restarted {
			c.Flags |= restartState
		}
		for _, t := range c.Tuples {
			t.Flags |= forwardingState
		}
	}
	m.Header.Len = 0 // computed again
	return m.Serialize()
}

// addGracefulRestart adds the capability without families to a valid OPEN: the library then
// sends End-of-RIB (RFC 4724 §3). An OPEN without room stays as it is.
func addGracefulRestart(message []byte) []byte {
	const size = headerSize + 9 // where the size of the parameters is
	added := []byte{wire.BGP_OPT_CAPABILITY, 4, byte(wire.BGP_CAP_GRACEFUL_RESTART), 2, 0, 0}
	if int(message[size])+len(added) >= 255 { // RFC 9072
		return message
	}
	message = append(message, added...)
	message[size] += byte(len(added))
	binary.BigEndian.PutUint16(message[16:], uint16(len(message)))
	return message
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
	// malformed is sent for a message that can't be read, outOfOrder for one that the
	// session's state doesn't allow.
	malformed  = Notification{Code: wire.BGP_ERROR_MESSAGE_HEADER_ERROR, Subcode: 2}
	outOfOrder = Notification{Code: wire.BGP_ERROR_FSM_ERROR, Subcode: 0}
	// badPeerAS is sent for an unexpected ASN, badIdentifier for an impossible router ID.
	badPeerAS       = Notification{Code: wire.BGP_ERROR_OPEN_MESSAGE_ERROR, Subcode: 2}
	badIdentifier   = Notification{Code: wire.BGP_ERROR_OPEN_MESSAGE_ERROR, Subcode: 3}
	tooManyPrefixes = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 1}
	outOfResources  = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 8}
	badNextHop      = Notification{Code: wire.BGP_ERROR_UPDATE_MESSAGE_ERROR, Subcode: 8}
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

// String is for operators: "administrative shutdown: maintenance".
func (n Notification) String() (text string) {
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
func (n Notification) message() ([]byte, error) {
	var data []byte
	if n.hasText() {
		text := n.Text[:min(len(n.Text), 255)]
		data = append([]byte{byte(len(text))}, text...)
	}
	return wire.NewBGPNotificationMessage(n.Code, n.Subcode, data).Serialize()
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

// badMessage returns the reason of a session that a peer's message ended.
func badMessage(n Notification) string { return "received a bad message: " + n.String() }

// Received begins the reason of a session that the peer has ended with a notification.
const Received = "received NOTIFICATION: "

// describeReceived explains a peer's notification.
func (s *Session) describeReceived(n Notification) string {
	text := n.String()
	switch {
	case n == badPeerAS:
		text = fmt.Sprintf("bad peer AS: the peer does not accept AS %d", s.local.ASN)
		if open := s.Status().Open; open != nil {
			text += fmt.Sprintf(", and is AS %d itself", open.ASN)
		}
	case n.Code == wire.BGP_ERROR_FSM_ERROR: // FRR's reply in the first second of a neighbour's life
		text = "finite state machine error: the peer may not be ready yet"
	}
	return Received + text
}

// describeSent explains the library's notification.
func (s *Session) describeSent(n Notification) string {
	state, open := s.Status().State, s.Status().Open
	switch {
	case n == badPeerAS && open != nil:
		return fmt.Sprintf("bad peer AS: the peer is AS %d, configured is AS %d", open.ASN, s.config.ASN)
	case n == badIdentifier && open != nil && open.RouterID == s.local.RouterID:
		return fmt.Sprintf("bad BGP identifier %s: it is this node's own", open.RouterID)
	case n.Code == wire.BGP_ERROR_HOLD_TIMER_EXPIRED && state == bgp.Established:
		return "hold timer expired: the peer was silent"
	case n.Code == wire.BGP_ERROR_HOLD_TIMER_EXPIRED, n.Code == wire.BGP_ERROR_CEASE:
		return n.String()
	}
	return badMessage(n)
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
