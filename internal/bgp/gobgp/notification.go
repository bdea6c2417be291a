// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"fmt"
	"strings"
	"unicode"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Notification is why a session is ended (RFC 4271 §4.5).
type Notification struct {
	Code, Subcode uint8
	// Text is for people, in a Cease of the kinds that take one (RFC 9003).
	Text string
}

// The notifications that a speaker sends by its own decision.
var (
	// AdministrativeShutdown is sent when the agent stops (RFC 4486).
	AdministrativeShutdown = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 2}
	// Deconfigured is sent when the peer is no longer configured.
	Deconfigured = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 3}
	// Changed is sent when the peer is configured otherwise.
	Changed = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 6}
	// BFDDown is sent when BFD found the peer dead (RFC 9384).
	BFDDown = Notification{Code: wire.BGP_ERROR_CEASE, Subcode: 10}
)

// malformed is sent when a message can't be read, outOfOrder when one comes that
// the state of the session doesn't allow.
var (
	malformed  = Notification{Code: wire.BGP_ERROR_MESSAGE_HEADER_ERROR, Subcode: 2}
	outOfOrder = Notification{Code: wire.BGP_ERROR_FSM_ERROR, Subcode: 0}
)

// words are the names of codes and subcodes; subcode 0 names the code itself.
var words = map[Notification]string{
	{Code: 1}:              "malformed message",
	{Code: 1, Subcode: 1}:  "connection not synchronised",
	{Code: 1, Subcode: 2}:  "bad message length",
	{Code: 1, Subcode: 3}:  "bad message type",
	{Code: 2}:              "malformed OPEN",
	{Code: 2, Subcode: 1}:  "unsupported version",
	{Code: 2, Subcode: 2}:  "bad peer AS",
	{Code: 2, Subcode: 3}:  "bad BGP identifier",
	{Code: 2, Subcode: 4}:  "unsupported optional parameter",
	{Code: 2, Subcode: 6}:  "unacceptable hold time",
	{Code: 2, Subcode: 7}:  "unsupported capability",
	{Code: 3}:              "malformed UPDATE",
	{Code: 4}:              "hold timer expired",
	{Code: 5}:              "message out of order",
	{Code: 6}:              "cease",
	{Code: 6, Subcode: 1}:  "too many prefixes",
	{Code: 6, Subcode: 2}:  "administrative shutdown",
	{Code: 6, Subcode: 3}:  "peer de-configured",
	{Code: 6, Subcode: 4}:  "administrative reset",
	{Code: 6, Subcode: 5}:  "connection rejected",
	{Code: 6, Subcode: 6}:  "configuration changed",
	{Code: 6, Subcode: 7}:  "connection collision",
	{Code: 6, Subcode: 8}:  "out of resources",
	{Code: 6, Subcode: 9}:  "hard reset",
	{Code: 6, Subcode: 10}: "BFD down",
	{Code: 7}:              "malformed ROUTE-REFRESH",
}

// String is for operators: "administrative shutdown: maintenance".
func (n Notification) String() string {
	text, ok := words[Notification{Code: n.Code, Subcode: n.Subcode}]
	if !ok {
		text, ok = words[Notification{Code: n.Code}]
		text = fmt.Sprintf("%s (subcode %d)", text, n.Subcode)
	}
	if !ok {
		text = fmt.Sprintf("notification %d/%d", n.Code, n.Subcode)
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

// message is the notification as bytes.
func (n Notification) message() ([]byte, error) {
	var data []byte
	if n.hasText() {
		text := n.Text[:min(len(n.Text), 255)]
		data = append([]byte{byte(len(text))}, text...)
	}
	return wire.NewBGPNotificationMessage(n.Code, n.Subcode, data).Serialize()
}

// readNotification reads what a peer sent; of its text only what can be printed.
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
