// SPDX-License-Identifier: Apache-2.0

package session

import (
	"strings"
	"testing"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

func TestNotification(t *testing.T) {
	for _, test := range []struct {
		sent, read Notification
		words      string
	}{
		{Notification{6, 2, "maintenance"}, Notification{6, 2, "maintenance"}, "administrative shutdown: maintenance"},
		{Notification{6, 2, "a\nb\x1b[31m"}, Notification{6, 2, "a b [31m"}, "administrative shutdown: a b [31m"},
		{Notification{6, 3, "no text here"}, Notification{6, 3, ""}, "peer de-configured"},
		{Notification{6, 77, ""}, Notification{6, 77, ""}, "cease (subcode 77)"},
		{Notification{99, 1, ""}, Notification{99, 1, ""}, "notification 99/1"},
		{Notification{6, 4, strings.Repeat("x", 300)}, Notification{6, 4, strings.Repeat("x", 255)},
			"administrative reset: " + strings.Repeat("x", 255)},
	} {
		m, err := wire.ParseBGPMessage(test.sent.message())
		if err != nil {
			t.Fatal(err)
		}
		read := readNotification(m.Body.(*wire.BGPNotification))
		if read != test.read || read.Error() != test.words {
			t.Errorf("%+v: read %+v, want %+v; says %q, want %q", test.sent, read, test.read, read.Error(), test.words)
		}
	}
	lies := readNotification(&wire.BGPNotification{ErrorCode: 6, ErrorSubcode: 2, Data: []byte{200, 'h', 'i'}})
	if lies.Text != "hi" {
		t.Errorf("a text that claims to be longer than it is: %q", lies.Text)
	}
}
