// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"net/netip"
)

// Observe says where the agent shows itself to people and to scrapers. A running
// agent can't change it.
type Observe struct {
	// Listen is the TCP address of the status page, the metrics and the API; the
	// zero value if there is none. Port 0 is any that is free.
	Listen netip.AddrPort
	// Chosen says that the file names the address, so that the agent doesn't start
	// without it. The default address is one that the agent can do without.
	Chosen bool
}

// listenNone is the word for no listener.
const listenNone = "none"

// defaultListen can be reached from the node itself only.
func defaultListen() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 9571)
}

func (o *Observe) read(v value) {
	v.readFields(optional("listen", o.readListen))
}

func (o *Observe) readListen(v value) {
	const want = "an address and a port, such as 127.0.0.1:9571, or none"
	text, ok := v.text(want)
	if !ok {
		return
	}
	o.Chosen = true
	if text == listenNone {
		o.Listen = netip.AddrPort{}
		return
	}
	listen, err := netip.ParseAddrPort(text)
	if err != nil || listen.Addr().Is4In6() || listen.Addr().IsMulticast() {
		v.failf("bad address %q: want %s", text, want)
		return
	}
	o.Listen = listen
}

// String is what the file would say.
func (o Observe) String() string {
	if !o.Listen.IsValid() {
		return listenNone
	}
	return fmt.Sprint(o.Listen)
}
