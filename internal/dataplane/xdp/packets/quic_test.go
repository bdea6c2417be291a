// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fuzzrand"
)

// The form of connection ids in these tests.
var testForm = lb.QUIC{ConfigID: 2, ServerIDLength: 3, NonceLength: 5}

// serverID is the id of the nth backend.
func serverID(n int) string { return string([]byte{0xc0, byte(n >> 8), byte(n)}) }

// connectionID returns a server's connection ID, with the form's configuration.
func connectionID(server string) string {
	return string([]byte{byte(testForm.ConfigID)<<5 | 0x1f}) + server + "nonce"
}

// Packets of RFC 8999: the bytes after the connection ID are encrypted.
func shortHeader(id string) string { return "\x41" + id + strings.Repeat("\xaa", 24) }

func longHeader(id string) string {
	return "\xe1\x00\x00\x00\x01" + string([]byte{byte(len(id))}) + id + "\x00" + strings.Repeat("\xaa", 24)
}

// quicService has n backends that can be named, and one that can't.
func quicService(vip netip.Addr, n int) *lb.Service {
	svc := manyBackends(vip, n+1)
	form := testForm
	svc.Protocol, svc.Affinity, svc.QUIC = lb.UDP, lb.AffinityQUIC, &form
	for i := range n {
		svc.Backends[i].ServerID = lb.ServerID(serverID(i))
	}
	return svc
}

func datagram(vip lb.VIP, client netip.AddrPort, payload string) frame {
	f := clientFrame(vip, client)
	f.payload = payload
	return f
}

// sentTo is the index of the backend to which a frame goes.
func sentTo(t *testing.T, p *xdp.Unattached, svc *lb.Service, f frame) int {
	t.Helper()
	out := wantVerdict(t, p, f.build(), xdpTX, "forward_l2dsr")
	id, _ := receiver(t, xdpTX, out, svc.VIP, svc.Backends)
	return slices.IndexFunc(svc.Backends, func(b lb.Backend) bool { return b.ID() == id })
}

// wayfarers are addresses of one client, as it changes networks.
func wayfarers(vip netip.Addr) []netip.AddrPort {
	var all []netip.AddrPort
	for i := range 40 {
		address := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
		if vip.Is6() {
			address = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 7: byte(i), 15: 7})
		}
		all = append(all, netip.AddrPortFrom(address, uint16(40000+i)))
	}
	return all
}

// A connection's packets go to the server that its id names, whatever the
// client's address, behind every kind of header.
func TestQUIC(t *testing.T) {
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, segment := range []lb.Segment{{}, segment(100), redVXLAN, redGeneve} {
			t.Run(family(vip)+" "+segment.String(), func(t *testing.T) {
				p, _ := newTestPlane(t)
				svc := quicService(vip, 5)
				svc.Segment = segment
				update(t, p, svc)
				for i, client := range wayfarers(vip) {
					want := i % 5
					for _, header := range []func(string) string{shortHeader, longHeader} {
						f := datagram(svc.VIP, client, header(connectionID(serverID(want))))
						if got := sentTo(t, p, svc, f); got != want {
							t.Errorf("%s: the packet for server %d went to %d", client, want, got)
						}
						if said := trace(t, p, f.build()); !said.Flow.Named || said.Ring != nil || said.Backend.ID != svc.Backends[want].ID() {
							t.Errorf("%s: the packet for server %d is traced to %+v", client, want, said.Backend)
						}
						if _, ok := f.ip[0].(*layers.IPv4); ok {
							if got := sentTo(t, p, svc, withOptions(f)); got != want {
								t.Errorf("%s: with options the packet for server %d went to %d", client, want, got)
							}
						}
					}
				}
			})
		}
	}
}

// Packets whose ID names no usable server are balanced by five-tuple.
func TestQUICFallsBack(t *testing.T) {
	p, hops := newTestPlane(t)
	svc := quicService(vip4, 8)
	hops.lost[svc.Backends[3].Address] = true
	other := quicService(vip4, 2)
	other.Port = 443
	for i := range other.Backends {
		other.Backends[i].Port, other.Backends[i].ServerID = 443, ""
	}
	other.Backends[0].ServerID = lb.ServerID(serverID(77))
	update(t, p, svc)
	update(t, p, other)
	named := connectionID(serverID(0))
	config := func(id int) string { return string([]byte{byte(id)<<5 | named[0]&0x1f}) + named[1:] }
	for name, payload := range map[string]string{
		"not quic":                      "\x00",
		"empty":                         "",
		"other configuration":           shortHeader(config(1)),
		"unroutable":                    shortHeader(config(7)),
		"long, other configuration":     longHeader(config(3)),
		"unknown server":                shortHeader(connectionID(serverID(999))),
		"server without next hop":       shortHeader(connectionID(serverID(3))),
		"another service's server":      shortHeader(connectionID(serverID(77))),
		"short, nonce cut":              "\x41" + named[:8],
		"long, id shorter than servers": longHeader(named[:8]),
		"long, id of nothing":           longHeader(""),
		"long, ends within the id":      longHeader(named)[:6+8],
		"long, ends within the version": longHeader(named)[:4],
	} {
		t.Run(name, func(t *testing.T) {
			for _, client := range wayfarers(vip4) {
				want := sentTo(t, p, svc, datagram(svc.VIP, client, "no id at all"))
				if got := sentTo(t, p, svc, datagram(svc.VIP, client, payload)); got != want {
					t.Errorf("%s: went to server %d, want the five-tuple's %d", client, got, want)
				}
			}
		})
	}
	t.Run("id in the padding of the frame", func(t *testing.T) {
		whole := datagram(svc.VIP, wayfarers(vip4)[1], "\x41"+named)
		cut := datagram(svc.VIP, wayfarers(vip4)[1], "\x41"+named[:8])
		in := append(cut.build(), named[8:]...)
		_, plain := run(t, p, cut.build())
		wantBytes(t, p, in, append(plain, named[8:]...), xdpTX, "forward_l2dsr")
		if got := sentTo(t, p, svc, whole); got != 0 {
			t.Errorf("the whole packet went to %d", got)
		}
	})
}

// wantNamed checks where the servers' packets go: want[i] is the backend for server
// id i, or -1 for the five-tuple's.
func wantNamed(t *testing.T, p *xdp.Unattached, svc *lb.Service, want ...int) {
	t.Helper()
	for id, backend := range want {
		for _, client := range wayfarers(svc.Address)[:8] {
			expected := backend
			if backend < 0 {
				expected = sentTo(t, p, svc, datagram(svc.VIP, client, "no id"))
			}
			if got := sentTo(t, p, svc, datagram(svc.VIP, client, shortHeader(connectionID(serverID(id))))); got != expected {
				t.Errorf("%s: the packet for server id %d went to %d, want %d", client, id, got, expected)
			}
		}
	}
}

// Server ids follow their backends through every change, and a successor knows
// them.
func TestQUICChanges(t *testing.T) {
	dir := testPins(t)
	p := openTestPlane(t, dir, newStaticHops())
	svc := quicService(vip6, 4)
	update(t, p, svc)
	wantNamed(t, p, svc, 0, 1, 2, 3, -1)
	change := func(name string, do func(svc *lb.Service)) *lb.Service {
		next := *svc
		next.Backends = append([]lb.Backend{}, svc.Backends...)
		do(&next)
		if found := next.Check(); len(found) > 0 {
			t.Fatalf("%s: %v", name, found)
		}
		update(t, p, &next)
		t.Log(name)
		return &next
	}
	change("drained", func(s *lb.Service) { s.Backends[1].Weight = 0 })
	wantNamed(t, p, svc, 0, 1, 2, 3)
	change("all drained", func(s *lb.Service) {
		for i := range s.Backends {
			s.Backends[i].Weight = 0
		}
	})
	wantNamed(t, p, svc, 0, 1, 2, 3)
	swapped := change("exchanged", func(s *lb.Service) {
		s.Backends[0].ServerID, s.Backends[1].ServerID = s.Backends[1].ServerID, s.Backends[0].ServerID
	})
	wantNamed(t, p, svc, 1, 0, 2, 3)
	change("taken away", func(s *lb.Service) { s.Backends[2].ServerID = "" })
	wantNamed(t, p, svc, 0, 1, -1, 3)
	change("left", func(s *lb.Service) { s.Backends = s.Backends[1:] })
	wantNamed(t, p, svc, 0, 1, 2, 3)
	change("left, and another has its id", func(s *lb.Service) {
		s.Backends = s.Backends[1:]
		s.Backends[3].ServerID = lb.ServerID(serverID(0))
	})
	wantNamed(t, p, svc, 4, 1, 2, 3)
	change("other form", func(s *lb.Service) {
		s.QUIC = &lb.QUIC{ConfigID: 1, ServerIDLength: 3, NonceLength: 5}
	})
	wantNamed(t, p, svc, -1, -1, -1, -1)
	change("no affinity", func(s *lb.Service) {
		s.Affinity, s.QUIC = lb.AffinityFlow, nil
		for i := range s.Backends {
			s.Backends[i].ServerID = ""
		}
	})
	wantNamed(t, p, svc, -1, -1, -1, -1)
	if n := countElements(t, p.Tables.Maps.Servers); n != 0 {
		t.Errorf("%d server ids are left in the table", n)
	}

	update(t, p, swapped)
	half := table.BalancerServerKey{Service: serviceNumber(t, p, svc.VIP), Length: 4, Id: [16]uint8{'h', 'a', 'l', 'f'}}
	must(t, p.Tables.Maps.Servers.Put(half, table.BalancerServer{Service: half.Service, Backend: 3}))
	must(t, p.Close())
	successor := openTestPlane(t, dir, newStaticHops())
	wantNamed(t, successor, svc, 1, 0, 2, 3, -1)
	if n := countElements(t, successor.Tables.Maps.Servers); n != 4 {
		t.Errorf("%d server ids are in the table, want 4", n)
	}
	update(t, successor, swapped)
	wantNamed(t, successor, svc, 1, 0, 2, 3, -1)
	remove(t, successor, svc.VIP)
	if n := countElements(t, successor.Tables.Maps.Servers); n != 0 {
		t.Errorf("%d server ids are left in the table", n)
	}
}

// quicModel is bpf/pick/quic.h's quic_server_id, written a second time: the server id
// in a datagram, or "".
func quicModel(payload string, form lb.QUIC) string {
	id, longest := "", len(payload)
	switch {
	case len(payload) < 7:
		return ""
	case payload[0]&0x80 != 0:
		id, longest = payload[6:], int(payload[5])
	default:
		id = payload[1:]
	}
	need := 1 + form.ServerIDLength + form.NonceLength
	if len(id) < need || longest < need || int(id[0]>>5) != form.ConfigID {
		return ""
	}
	return id[1 : 1+form.ServerIDLength]
}

// Random forms and random datagrams, many of them nearly right.
func TestQUICModel(t *testing.T) {
	p, _ := newTestPlane(t)
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	for range 40 {
		svc := quicService(vip4, 0)
		length := 1 + random.IntN(lb.MaxServerIDLength)
		svc.QUIC = &lb.QUIC{ConfigID: random.IntN(7), ServerIDLength: length, NonceLength: 4 + random.IntN(19-length-3)}
		svc.Backends = manyBackends(vip4, 6).Backends
		byID := map[string]int{}
		for i := range svc.Backends {
			id := fmt.Sprintf("%c%s", 'a'+i, strings.Repeat("x", length-1))
			svc.Backends[i].ServerID, byID[id] = lb.ServerID(id), i
		}
		if found := svc.Check(); len(found) > 0 {
			t.Fatal(found)
		}
		update(t, p, svc)
		for range 60 {
			payload := randomQUIC(random, svc)
			client := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), uint16(1024+random.IntN(60000)))
			want, named := byID[quicModel(payload, *svc.QUIC)]
			if !named {
				want = sentTo(t, p, svc, datagram(svc.VIP, client, ""))
			}
			if got := sentTo(t, p, svc, datagram(svc.VIP, client, payload)); got != want {
				t.Errorf("%+v: % x went to %d, want %d (named: %t)", *svc.QUIC, payload, got, want, named)
			}
		}
	}
}

// randomQUIC is a packet for one of the servers, whole or damaged.
func randomQUIC(random *rand.Rand, svc *lb.Service) string {
	b := svc.Backends[random.IntN(len(svc.Backends))]
	var nonce []byte
	for range 3 {
		nonce = binary.BigEndian.AppendUint64(nonce, random.Uint64())
	}
	id := string([]byte{byte(svc.QUIC.ConfigID)<<5 | byte(random.IntN(32))}) + string(b.ServerID) + string(nonce)
	id = id[:1+svc.QUIC.ServerIDLength+svc.QUIC.NonceLength-random.IntN(2)]
	payload := []byte(longHeader(id))
	if random.IntN(2) == 0 {
		payload = []byte(shortHeader(id))
	}
	if random.IntN(3) == 0 {
		payload[random.IntN(10)] = byte(random.Uint32())
	}
	if random.IntN(3) == 0 {
		payload = payload[:random.IntN(len(payload))]
	}
	return string(payload)
}
