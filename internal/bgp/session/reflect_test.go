// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"encoding/binary"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// beginClient establishes a session of a reflector with a client that the test is.
func beginClient(t *testing.T) *dialogue {
	t.Helper()
	i := reflectorInstance(t)
	client := bgp.Peer{Address: router.Address, ASN: balancer.ASN, HoldTime: 90 * time.Second}
	reflection := &bgp.Reflection{
		Local: balancer, ClusterID: balancer.RouterID, NextHops: []netip.Prefix{netip.MustParsePrefix("10.0.2.0/24")},
		Clients: []bgp.Range{{Prefix: HostPrefix(client.Address), MaxClients: 1, Peer: client}},
		Accept:  []bgp.Acceptance{{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Shortest: 32}},
	}
	key, err := i.AddClient(t.Context(), reflection, &client)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	d := &dialogue{t: t, router: theirs}
	d.eventually("the library's state", func() bool { return i.state(key).String() == "SESSION_STATE_ACTIVE" })
	if d.session, err = i.BeginClient(ctx, reflection, key, &client, &Pending{TCPConn: ours}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.session.Drop("the test is over") })
	d.send(openFrom(balancer.ASN))
	d.send(wire.NewBGPKeepAliveMessage())
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	d.await(d.session.Established(), "established")
	return d
}

// announceEach announces the first routes of 10.1.0.0/16, each in an UPDATE with more attributes.
func (d *dialogue) announceEach(number int, more ...byte) {
	d.t.Helper()
	attributes := slices.Concat([]byte{
		0x40, 1, 1, 0, // ORIGIN IGP
		0x40, 2, 0, // AS_PATH, empty
		0x40, 3, 4, 10, 0, 2, 11, // NEXT_HOP
		0x40, 5, 4, 0, 0, 0, 100, // LOCAL_PREF
	}, more)
	for n := range number {
		body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attributes)))
		body = append(append(body, attributes...), 32, 10, 1, byte(n>>8), byte(n))
		header := binary.BigEndian.AppendUint16(slices.Clone(marker), uint16(headerSize+len(body)))
		_, _ = d.router.Write(slices.Concat(header, []byte{wire.BGP_MSG_UPDATE}, body)) // fails if the session has ended
	}
}

// attribute is an optional transitive attribute that consists of repetitions of a value.
func attribute(kind byte, value []byte, repetitions int) []byte {
	size := len(value) * repetitions
	return append([]byte{0xd0, kind, byte(size >> 8), byte(size)}, slices.Repeat(value, repetitions)...)
}

// awaitUpdates waits until the session has passed that many UPDATEs on, and returns the bytes of
// the heap in use.
func (d *dialogue) awaitUpdates(number uint64) (heap int) {
	d.t.Helper()
	d.eventually("the number of UPDATEs", func() bool { return counters(d.session).UpdatesReceived >= number })
	d.session.passing.Lock() // the last one may be about to be passed on
	defer d.session.passing.Unlock()
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // memory that finalizers of the first have released
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// Attributes that a client's routes may not have cost no memory.
func TestMemoryOfAttributes(t *testing.T) {
	const routes = 2000
	d := beginClient(t)
	empty := d.awaitUpdates(0)
	d.announceEach(routes)
	plain := d.awaitUpdates(routes) - empty
	d.announceEach(routes, slices.Concat(
		attribute(200, []byte("unknown"), 100),
		attribute(16, []byte{0, 2, 0, 1, 0, 0, 0, 1}, 300),          // route targets
		attribute(16, []byte{0x40, 4, 253, 253, 0x50, 0, 0, 0}, 30), // link bandwidth
	)...)
	if more := d.awaitUpdates(2*routes) - empty - plain; more > 4096*routes {
		t.Errorf("%d routes take %d bytes, and %d bytes more with attributes that they may not have", routes, plain, more)
	}
}

// The attributes of a client's routes are bounded in all. Attributes of routes that it has
// replaced don't count.
func TestBoundOfAttributes(t *testing.T) {
	d := beginClient(t)
	const routes, rounds = 500, 4
	large := attribute(32, []byte{0, 0, 253, 253, 0, 0, 0, 1, 0, 0, 0, 2}, 300)
	for round := range rounds {
		d.announceEach(routes, large...)
		d.awaitUpdates(uint64(routes * (round + 1)))
	}
	if reason := d.session.Status().Reason; reason != "" || len(d.session.AdjRIBIn()) != routes {
		t.Fatalf("%d routes: %s", len(d.session.AdjRIBIn()), reason)
	}
	d.announceEach(2*routes, large...)
	d.ends("received a bad message: out of resources")
	if n := len(d.session.AdjRIBIn()); n < routes || n > maxAttributes/len(large)+1 {
		t.Errorf("%d routes", n)
	}
}
