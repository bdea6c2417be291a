// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/reflector"
	"fairlead.io/fairlead/test/await"
)

// FuzzClientSession shows that whatever a client sends, only routes that are configured are
// reflected, the connection ends, and other clients keep their sessions.
//
// The first byte of the input decides whether a handshake precedes. Messages follow: a byte
// for the type, one for the length, and the body.
func FuzzClientSession(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("needs root: a network namespace with all addresses of the loopback")
	}
	announcement := []byte{
		0, 0, 0, 21, 0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 3, 4, 10, 0, 2, 11, 0x40, 5, 4, 0, 0, 0, 100, 32, 10, 1, 1, 1, 24, 10, 9, 9,
	}
	f.Add([]byte{0})
	f.Add(slices.Concat([]byte{1, update, byte(len(announcement))}, announcement))
	f.Add(slices.Concat([]byte{3, update, byte(len(announcement))}, announcement, []byte{update, 4, 0, 0, 0, 0, notification, 2, 6, 2}))
	f.Add([]byte{1, update, 10, 0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1})
	f.Add([]byte{0, open, 10, 4, 0xfd, 0xfd, 0, 90, 10, 0, 2, 11, 0, keepalive, 0})
	config := settings()
	config.Routers = nil
	config.Clients[0].RestartTime, config.Clients[0].MaxClients = time.Second, 4096
	r, err := reflector.Start(f.Context(), config, reflector.Options{Log: log})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(r.Close)
	to := netip.AddrPortFrom(reflectorAddress, bgp.Port).String() // each worker has a network namespace
	dial := func(t testing.TB, n int) *client {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: clientAddress(n).AsSlice()}}
		conn, err := dialer.Dial("tcp4", to)
		if err != nil {
			t.Fatal(err)
		}
		return &client{t: nil, n: n, conn: conn, ended: make(chan struct{})}
	}
	steady := dial(f, 1)
	go steady.listen()
	steady.handshake(restarting)
	steady.announce("10.1.1.1/32")
	ping := time.NewTicker(10 * time.Second)
	f.Cleanup(ping.Stop)
	go func() {
		for range ping.C {
			steady.send(keepalive, nil)
		}
	}()
	f.Fuzz(func(t *testing.T, input []byte) {
		c := dial(t, 2)
		if len(input) > 0 && input[0]&1 != 0 {
			c.handshake(identity{asn: asn, restart: input[0]&2 != 0})
		}
		for input = input[min(1, len(input)):]; len(input) >= 2; {
			body := input[2:min(len(input), 2+int(input[1]))]
			c.send(input[0], body)
			input = input[2+len(body):]
		}
		tcp := c.conn.(*net.TCPConn)
		_ = tcp.CloseWrite()
		_ = tcp.SetReadDeadline(time.Now().Add(await.Patience))
		if _, err := io.Copy(io.Discard, tcp); os.IsTimeout(err) {
			t.Error("connection does not end")
		}
		tcp.Close()
		for _, route := range r.Routes() {
			if !config.Accepts(route.Clients[0], route.Prefix, route.NextHop) {
				t.Errorf("reflects %+v", route)
			}
		}
		await.True(t, "the steady client's session", func() bool { return established(r, clientAddress(1)) })
		select {
		case <-steady.ended:
			t.Errorf("another client's session ended: % x", steady.said)
		default:
		}
	})
}
