// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/lab/netlab"
)

// Where nothing breaks nothing is counted as broken, also when the phase ends in
// the middle of everything.
func TestLoadOfAnHonestServer(t *testing.T) {
	const connections, flows = 40, 10
	l := newTestLoad(t, (&net.Dialer{}).DialContext)
	l.Start(t.Context(), connections, flows, 100)
	seen, err := l.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if seen.TCPBroken() != 0 || seen.Moved != 0 || seen.Lost != 0 {
		t.Errorf("honest server: %+v", seen)
	}
	if seen.Connections < connections || seen.Flows != flows {
		t.Errorf("%d connections and %d flows, want %d and %d", seen.Connections, seen.Flows, connections, flows)
	}
	// One when it was opened, one when the phase ended.
	if seen.Lines < 2*connections || seen.Datagrams < 2*flows {
		t.Errorf("%d lines and %d datagrams", seen.Lines, seen.Datagrams)
	}
}

// A connection that can't be opened is a broken one, and is tried again.
func TestLoadReplacesBrokenConnections(t *testing.T) {
	var tries atomic.Int64
	retried := make(chan struct{})
	l := newTestLoad(t, func(ctx context.Context, network, address string) (net.Conn, error) {
		if network == "tcp" && tries.Add(1) == 1 {
			address = "127.0.0.1:1"
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if network == "tcp" && err == nil {
			close(retried)
		}
		return conn, err
	})
	l.Start(t.Context(), 1, 1, 0.001)
	<-retried
	seen, err := l.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if seen.broken[unopened] != 1 || seen.TCPBroken() != 1 || seen.Connections != 2 || seen.Lines == 0 {
		t.Errorf("one of two can't be opened: %+v", seen)
	}
	if seen.BrokenAt[0] != 1 || len(seen.BrokenAt) != len(seen.MovedAt) {
		t.Errorf("timelines %v and %v, want one connection broken in the first second", seen.BrokenAt, seen.MovedAt)
	}
}

// An interrupted load returns no result.
func TestLoadInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := newTestLoad(t, (&net.Dialer{}).DialContext)
	l.Start(ctx, 10, 10, 1)
	cancel()
	if seen, err := l.Stop(); err == nil || seen.TCPBroken() != 0 {
		t.Errorf("interrupted: %+v, %v", seen, err)
	}
}

// newTestLoad is a load on one echo server of this process.
func newTestLoad(t *testing.T, dial func(context.Context, string, string) (net.Conn, error)) *Load {
	t.Helper()
	address := freeAddress(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- netlab.Echo(ctx, "server1", []netip.AddrPort{address}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	awaitEcho(t, address)
	return &Load{
		Dial: dial, Targets: []Destination{{VIP: address, Servers: NewPresence([]string{"server1"})}},
		Timeout: 5 * time.Second, Progress: t.Logf,
	}
}

// awaitEcho returns when the server answers over UDP; it listens to TCP before.
func awaitEcho(t *testing.T, address netip.AddrPort) {
	t.Helper()
	conn, err := net.Dial("udp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f := newFlow(conn, NewPresence(nil), 0)
	for deadline := time.Now().Add(10 * time.Second); f.server == ""; {
		if time.Now().After(deadline) {
			t.Fatalf("%s doesn't answer", address)
		}
		f.send()
		if err := f.receive(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
}

// freeAddress is an unused port of a random address of 127.0.0.0/8: the kernel picks that address
// for no connection, so the port stays free until it is used.
func freeAddress(t *testing.T) netip.AddrPort {
	t.Helper()
	random := rand.Uint32()
	host := netip.AddrFrom4([4]byte{127, byte(random>>16) | 1, byte(random >> 8), byte(random) | 2})
	listener, err := net.Listen("tcp", netip.AddrPortFrom(host, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).AddrPort()
}
