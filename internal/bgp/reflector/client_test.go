// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/test/await"
)

// client is a balancer as far as a reflector sees one. It is written out byte by
// byte, so that a client that misbehaves can be one, too.
type client struct {
	t    *testing.T
	n    int // the last part of its addresses and of its router id
	conn net.Conn
	// ended is closed when the reflector has closed the connection; said is the last
	// notification by then.
	ended chan struct{}
	said  []byte
}

// Message types (RFC 4271 §4.1).
const (
	open         = 1
	update       = 2
	notification = 3
	keepalive    = 4
)

// identity has the parameters of a client's OPEN.
type identity struct {
	asn     uint32
	restart bool // it has graceful restart
}

// connect has the nth client establish a session.
func connect(t *testing.T, n int, who identity) *client {
	t.Helper()
	return connectFrom(t, clientAddress(n), n, who)
}

// connectFrom is connect from an address that other clients may have too.
func connectFrom(t *testing.T, address netip.Addr, n int, who identity) *client {
	t.Helper()
	c := callFrom(t, address, n)
	c.handshake(who)
	return c
}

// call only connects.
func call(t *testing.T, n int) *client {
	t.Helper()
	return callFrom(t, clientAddress(n), n)
}

func callFrom(t *testing.T, address netip.Addr, n int) *client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: address.AsSlice()}}
	to := reflectorAddress
	if address.Is6() {
		to = netip.IPv6Loopback()
	}
	var conn net.Conn
	await.True(t, "connection", func() (ok bool) {
		var err error
		conn, err = dialer.Dial("tcp", netip.AddrPortFrom(to, 179).String())
		return err == nil
	})
	c := &client{t: t, n: n, conn: conn, ended: make(chan struct{})}
	go c.listen()
	return c
}

// listen reads until the reflector closes the connection, at the latest when the
// test ends.
func (c *client) listen() {
	defer close(c.ended)
	defer c.vanish()
	for {
		header := make([]byte, 19)
		if _, err := io.ReadFull(c.conn, header); err != nil {
			return
		}
		body := make([]byte, int(binary.BigEndian.Uint16(header[16:]))-len(header))
		if _, err := io.ReadFull(c.conn, body); err != nil {
			return
		}
		if header[18] == notification {
			c.said = body
		}
	}
}

// send sends a message. A connection that is closed is seen by listen.
func (c *client) send(kind byte, body []byte) {
	header := slices.Concat(slices.Repeat([]byte{0xff}, 16), []byte{0, 0, kind})
	binary.BigEndian.PutUint16(header[16:], uint16(19+len(body)))
	_, _ = c.conn.Write(append(header, body...))
}

// handshake sends an OPEN and a KEEPALIVE.
func (c *client) handshake(who identity) {
	c.send(open, c.open(who))
	c.send(keepalive, nil)
}

// announces announces all that the client has.
func (c *client) announces(prefixes ...string) *client {
	c.announce(prefixes...)
	c.endOfRIB()
	return c
}

// address is the client's end of the connection.
func (c *client) address() netip.Addr { return c.conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr() }

// vanish closes the connection without a NOTIFICATION.
func (c *client) vanish() { _ = c.conn.Close() }

// leave ends the session with a notification: cease, administrative shutdown.
func (c *client) leave() {
	c.send(notification, []byte{6, 2})
	_ = c.conn.Close()
}

// awaitEnd waits until the reflector has closed the connection, and returns the
// data of its notification.
func (c *client) awaitEnd() (said []byte) {
	c.t.Helper()
	select {
	case <-c.ended:
		return c.said
	case <-time.After(await.Patience):
		c.t.Fatal("the reflector doesn't end the session within 20 s")
		return nil
	}
}

// open is an OPEN message with a hold time of 90 s.
func (c *client) open(who identity) []byte {
	capabilities := []byte{
		1, 4, 0, 1, 0, 1, // multiprotocol: IPv4 unicast
		1, 4, 0, 2, 0, 1, // multiprotocol: IPv6 unicast
		65, 4, byte(who.asn >> 24), byte(who.asn >> 16), byte(who.asn >> 8), byte(who.asn),
	}
	if who.restart { // restart time 30, forwarding preserved in both families
		capabilities = append(capabilities, 64, 10, 0, 30, 0, 1, 1, 0x80, 0, 2, 1, 0x80)
	}
	body := []byte{4, byte(who.asn >> 8), byte(who.asn), 0, 90, 10, 0, 2, byte(c.n)}
	return slices.Concat(body, []byte{byte(len(capabilities) + 2), 2, byte(len(capabilities))}, capabilities)
}

// endOfRIB sends the End-of-RIB of both families (RFC 4724 §2).
func (c *client) endOfRIB() {
	c.send(update, []byte{0, 0, 0, 0})
	c.send(update, []byte{0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1})
}

// announce announces prefixes with the client's own next hop.
func (c *client) announce(prefixes ...string) {
	for _, text := range prefixes {
		prefix := netip.MustParsePrefix(text)
		attributes := []byte{
			0x40, 1, 1, 0, // ORIGIN IGP
			0x40, 2, 0, // AS_PATH, empty
			0x40, 5, 4, 0, 0, 0, 100, // LOCAL_PREF
		}
		if prefix.Addr().Is4() {
			attributes = append(attributes, 0x40, 3, 4, 10, 0, 2, byte(c.n)) // NEXT_HOP
			c.update(nil, attributes, reach(prefix))
			continue
		}
		hop := netip.MustParseAddr("fd00:2::").As16()
		// Written as the lab's addresses are: decimal digits.
		binary.BigEndian.PutUint16(hop[14:], uint16(c.n/100*256+c.n/10%10*16+c.n%10))
		value := slices.Concat([]byte{0, 2, 1, 16}, hop[:], []byte{0}, reach(prefix))
		c.update(nil, append(attributes, slices.Concat([]byte{0x80, 14, byte(len(value))}, value)...), nil)
	}
}

// withdraw takes IPv4 prefixes back.
func (c *client) withdraw(prefixes ...string) {
	for _, text := range prefixes {
		c.update(reach(netip.MustParsePrefix(text)), nil, nil)
	}
}

func (c *client) update(withdrawn, attributes, announced []byte) {
	length := func(b []byte) []byte { return binary.BigEndian.AppendUint16(nil, uint16(len(b))) }
	c.send(update, slices.Concat(length(withdrawn), withdrawn, length(attributes), attributes, announced))
}

// reach is a prefix as it stands in messages.
func reach(p netip.Prefix) []byte {
	return append([]byte{byte(p.Bits())}, p.Addr().AsSlice()[:(p.Bits()+7)/8]...)
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: port 179 in a network namespace")
	}
}
