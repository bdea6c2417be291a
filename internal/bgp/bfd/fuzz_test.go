// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"container/heap"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// FuzzDatagrams bounds the effects of datagrams on the sessions of a listener: each
// session stays where its discriminator leads and sends valid packets, and a session
// that is up ends only by its discriminator or by the peer's silence.
//
// A datagram of the input is a byte for source, TTL and interface, and then a packet.
func FuzzDatagrams(f *testing.F) {
	const size = 1 + packetLength
	datagram := func(from byte, p packet) []byte {
		b := p.bytes()
		return append([]byte{from}, b[:]...)
	}
	f.Add(false, datagram(0, said(down)))
	f.Add(false, slices.Concat(datagram(0, said(down)), datagram(0, said(initial)), datagram(1, said(up))))
	established := slices.Concat(datagram(0, said(down)), datagram(0, said(initial)), datagram(0, said(up)))
	poll, final, forged, authenticated := said(up), said(up), said(down), datagram(0, said(down))
	poll.poll, final.final, forged.your = true, true, 0
	authenticated[2] |= flagAuthentication
	authenticated[4] = authenticatedLength
	f.Add(false, slices.Concat(established, datagram(0, poll), datagram(0, final), datagram(0, forged), datagram(0, said(down))))
	f.Add(false, slices.Concat(established, datagram(0, said(adminDown))))
	f.Add(false, slices.Concat(established, datagram(16, said(down)), datagram(4, said(down)), authenticated)) // path and kind
	f.Add(true, slices.Concat(established, datagram(8, said(down)), datagram(2, forged), datagram(3, forged)))
	f.Add(true, slices.Concat(datagram(0, packet{state: down, multiplier: 1, my: 1}), datagram(4, said(down))))
	f.Add(true, datagram(2, packet{state: up, multiplier: 3, my: 9, your: 99, requiredMinRx: time.Hour})) // a former session
	f.Fuzz(func(t *testing.T, multihop bool, input []byte) {
		l := newListener(link{multihop: multihop}, slog.New(slog.DiscardHandler), new(sync.Once))
		for i, address := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
			peer := Peer{Address: netip.MustParseAddr(address), MaxHops: uint8(i), BFD: bgp.DefaultBFD}
			s := newSession(time.Now(), peer, uint32(7+i), func() float64 { return 0 }, func(Event) {})
			l.add(s)
			if i < 2 {
				l.begin(peer.Address)
			}
		}
		for ; len(input) > 1; input = input[min(size, len(input)):] {
			d := datagramOf(input[:min(size, len(input))])
			before := make(map[uint32]state)
			for local, m := range l.sessions {
				before[local] = m.state
			}
			l.handle(&d)
			p, err := parse(d.payload)
			for local, m := range l.sessions {
				if m.local != local || l.peers[m.peer.Address] != m {
					t.Fatalf("session %d is found as %d", m.local, local)
				}
				if before[local] == up && m.state != up && (err != nil || p.your != local) {
					t.Errorf("session ends by %+v (%v)", p, err)
				}
				for out, due := m.transmit(time.Now()); due; out, due = m.transmit(time.Now()) {
					b := out.bytes()
					if back, err := parse(b[:]); err != nil || back.my != local {
						t.Errorf("sent %+v (%v)", out, err)
					}
				}
				l.requeue(m)
			}
		}
		if len(l.sessions) != 3 || len(l.queue) != 3 {
			t.Errorf("%d sessions, %d in the queue", len(l.sessions), len(l.queue))
		}
		for range 3 {
			if m := heap.Pop(&l.queue).(*entry); len(l.queue) > 0 && m.wakes.After(l.queue[0].wakes) {
				t.Error("queue out of order")
			}
		}
	})
}

// datagramOf is a datagram of the input of FuzzDatagrams.
func datagramOf(b []byte) datagram {
	const loopback = 1
	return datagram{
		payload: b[1:], from: netip.AddrFrom4([4]byte{127, 0, 0, 1 + b[0]%4}), hops: hopLimit - int(b[0]>>2&3), device: loopback + int(b[0]>>4&1),
	}
}
