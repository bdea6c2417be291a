// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
	"fairlead.io/fairlead/test/await"
)

// A reflector that is closed leaves routers first, also those whose session isn't
// established yet.
func TestCloseRouters(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.1")
	r, err := Start(t.Context(), bgp.Reflection{
		Local:     bgp.Local{ASN: 65021, RouterID: netip.MustParseAddr("192.0.2.1")},
		ClusterID: netip.MustParseAddr("192.0.2.1"),
		Clients:   []bgp.Range{{Prefix: netip.MustParsePrefix("198.51.100.0/24"), MaxClients: 1, Peer: bgp.Peer{ASN: 65021}}},
		Routers:   []bgp.Peer{{Address: address, ASN: 65021, Passive: true}},
	}, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	here, router := connected(t)
	for keeper := r.routers[address]; keeper.State().State != bgp.Active; { // or the router's OPEN is awaited
		time.Sleep(time.Millisecond)
	}
	r.routers[address].Accept(here)
	clientHere, client := connected(t)
	r.mu.Lock()
	err = r.offer(netip.MustParseAddr("198.51.100.1"), &session.Pending{Conn: clientHere})
	r.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for _, conn := range []net.Conn{router, client} {
		_ = conn.SetReadDeadline(time.Now().Add(await.Patience))
		if _, err := io.ReadFull(conn, make([]byte, 19)); err != nil {
			t.Fatal("no OPEN:", err)
		}
	}
	r.closeRouters()
	if err := read(t, router); err != nil {
		t.Error("router:", err)
	}
	if err := read(t, client); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the client is left, too:", err)
	}
}

// A configuration whose passwords can't be set changes nothing.
func TestConfigureAfterAnError(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.1")
	config := bgp.Reflection{
		Local:     bgp.Local{ASN: 65021, RouterID: netip.MustParseAddr("192.0.2.1")},
		ClusterID: netip.MustParseAddr("192.0.2.1"),
		Routers:   []bgp.Peer{{Address: address, ASN: 65021, Passive: true}},
	}
	r, err := Start(t.Context(), config, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	taken, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := r.listener.Set(t.Context(), taken.Addr().(*net.TCPAddr).AddrPort()); err == nil {
		t.Fatal("an address is listened at twice")
	}
	before := r.routers[address]
	next := config
	next.Routers = nil
	if err := r.Configure(next); err == nil {
		t.Error("no error")
	}
	if len(r.config.Routers) != 1 || r.routers[address] != before {
		t.Errorf("the configuration is %+v", r.config)
	}
	taken.Close()
	if err := r.Configure(next); err != nil || len(r.config.Routers) != 0 || len(r.routers) != 0 {
		t.Errorf("the configuration is %+v: %v", r.config, err)
	}
}

// connected are both ends of a connection.
func connected(t *testing.T) (here *net.TCPConn, there net.Conn) {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if there, err = net.Dial("tcp4", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if here, err = listener.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

// read reads to the end.
func read(t *testing.T, conn net.Conn) error {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := io.ReadAll(conn)
	return err
}
