// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/fake"
)

// local is the speaker that calls.
func local() bgp.Local { return bgp.Local{ASN: 65021, RouterID: netip.MustParseAddr("10.0.2.11")} }

// listen opens a listener on a loopback address, and returns the peer that is
// there and the connections that come.
func listen(t *testing.T, at netip.Addr, first Keys) (*Listener, *atomic.Pointer[Keys], bgp.Peer, <-chan Conn) {
	t.Helper()
	keys := new(atomic.Pointer[Keys])
	keys.Store(&first)
	calls := make(chan Conn, 10)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	l := NewListener(log, func() (Keys, error) { return *keys.Load(), nil }, func(c Conn) { calls <- c })
	t.Cleanup(func() {
		l.Close()
		for len(calls) > 0 {
			(<-calls).Close()
		}
	})
	free := netip.AddrPortFrom(at, 0)
	if err := l.Set(t.Context(), free); err != nil {
		t.Fatal(err)
	}
	port := l.sockets[free].Addr().(*net.TCPAddr).AddrPort().Port()
	return l, keys, bgp.Peer{Address: at, ASN: 65000, Port: port, LocalAddress: at}, calls
}

// dialFor is Dial with less patience.
func dialFor(t *testing.T, peer *bgp.Peer) (*net.TCPConn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), dialTimeout/8)
	defer cancel()
	conn, err := Dial(ctx, local(), peer)
	tcp, _ := conn.(*net.TCPConn) // nil with an error
	return tcp, err
}

// families are loopback addresses.
func families() map[string]netip.Addr {
	return map[string]netip.Addr{"IPv4": netip.MustParseAddr("127.0.0.1"), "IPv6": netip.IPv6Loopback()}
}

func TestPassword(t *testing.T) {
	for name, at := range families() {
		t.Run(name, func(t *testing.T) {
			l, keys, peer, calls := listen(t, at, Keys{netip.PrefixFrom(at, at.BitLen()): "correct"})
			peer.Password = bgp.Secret{File: filepath.Join(t.TempDir(), "password")}
			for _, step := range []struct {
				password string
				keys     Keys
				fails    string
			}{
				{password: "correct"},
				{password: "wrong", fails: "timed out: wrong password, or unreachable"},
				{password: "other", keys: Keys{netip.PrefixFrom(at, at.BitLen()-8).Masked(): "other"}},
				{password: "", fails: "password: file"},
			} {
				if err := os.WriteFile(peer.Password.File, []byte(step.password), 0o600); err != nil {
					t.Fatal(err)
				}
				if step.keys != nil {
					keys.Store(&step.keys)
					if err := l.Update(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				conn, err := dialFor(t, &peer)
				if step.fails != "" {
					if err == nil || !strings.HasPrefix(err.Error(), step.fails) {
						t.Errorf("%q: %v, want %s", step.password, err, step.fails)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%q: %v", step.password, err)
				}
				conn.Close()
				(<-calls).Close()
			}
		})
	}
}

func TestUnsignedConnection(t *testing.T) {
	at := netip.MustParseAddr("127.0.0.1")
	_, _, peer, _ := listen(t, at, Keys{netip.PrefixFrom(at, 32): "secret"})
	_, err := dialFor(t, &peer)
	if err == nil || err.Error() != "timed out: unreachable, or it wants a password" {
		t.Error(err)
	}
	peer.TTLSecurity = 1
	_, err = dialFor(t, &peer)
	if err == nil || err.Error() != "timed out: further away than TTL security allows, unreachable, or it wants a password" {
		t.Error(err)
	}
}

func TestTTL(t *testing.T) {
	for name, at := range families() {
		for what, test := range map[string]struct {
			change  func(*bgp.Peer)
			hops    int // 0: the kernel's default
			minimum int
		}{
			"external":     {func(*bgp.Peer) {}, 1, 0},
			"internal":     {func(p *bgp.Peer) { p.ASN = 65021 }, 0, 0},
			"multihop":     {func(p *bgp.Peer) { p.Multihop = 5 }, 5, 0},
			"TTL security": {func(p *bgp.Peer) { p.TTLSecurity = 3 }, 255, 253},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				_, _, peer, calls := listen(t, at, nil)
				test.change(&peer)
				conn, err := Dial(t.Context(), local(), &peer)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				var accepted Conn
				select {
				case accepted = <-calls:
				case <-time.After(await.Patience):
					t.Fatal("not accepted")
				}
				defer accepted.Close()
				o := ttlOptionsOf(at)
				if test.hops == 0 {
					test.hops = 64
				} else if err := SetTTL(accepted, local(), &peer); err != nil {
					t.Fatal(err)
				} else if got := option(t, accepted, o.level, o.ttl); got != test.hops {
					t.Errorf("accepted: hop limit %d, want %d", got, test.hops)
				}
				if got := option(t, conn, o.level, o.ttl); got != test.hops {
					t.Errorf("hop limit %d, want %d", got, test.hops)
				}
				if got := option(t, conn, o.level, o.minimum); got != test.minimum {
					t.Errorf("takes packets with %d hops left, want %d", got, test.minimum)
				}
			})
		}
	}
}

// option reads a socket's option.
func option(t *testing.T, conn Conn, level, name int) (value int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = control(raw, func(fd int) (err error) {
		value, err = unix.GetsockoptInt(fd, level, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestClosedPort(t *testing.T) {
	_, at := fake.BoundSocket(t)
	peer := bgp.Peer{Address: at.Addr(), ASN: 65000, Port: at.Port(), LocalAddress: at.Addr()}
	_, err := Dial(t.Context(), local(), &peer)
	if err == nil || err.Error() != "connection refused" {
		t.Error(err)
	}
}
