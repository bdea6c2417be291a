// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// split cuts a packet into fragments with payloads of at most size bytes, a
// multiple of 8 (RFC 791 §2.3, RFC 8200 §4.5).
func split(packet []byte, id uint32, size int) [][]byte {
	header := 20
	if packet[0]>>4 == 6 {
		header = 40
	}
	var out [][]byte
	payload := packet[header:]
	for offset := 0; offset < len(payload); offset += size {
		end := min(offset+size, len(payload))
		more := end < len(payload)
		part := fragment4(packet[:header], payload[offset:end], id, offset, more)
		if header == 40 {
			field := uint16(offset)
			if more {
				field |= 1
			}
			part = withExtension(slices.Concat(packet[:40], payload[offset:end]), 44, fragmentHeader(packet[6], id, field))
		}
		out = append(out, part)
	}
	return out
}

func fragment4(header, payload []byte, id uint32, offset int, more bool) []byte {
	out := slices.Concat(header, payload)
	field := uint16(offset / 8)
	if more {
		field |= 0x2000
	}
	binary.BigEndian.PutUint16(out[2:], uint16(len(out)))
	binary.BigEndian.PutUint16(out[4:], uint16(id))
	binary.BigEndian.PutUint16(out[6:], field)
	fixChecksum(out)
	return out
}

// fixChecksum makes the checksum of an IPv4 header right.
func fixChecksum(ip []byte) {
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^sum16(ip[:4*(ip[0]&0xf)]))
}

// sum16 is the sum of RFC 1071.
func sum16(data []byte) uint16 {
	sum := uint32(0)
	for i, b := range data {
		sum += uint32(b) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// longFrame is a packet of a flow with that much payload.
func longFrame(svc *lb.Service, client netip.AddrPort, length int) frame {
	f := clientFrame(svc.VIP, client)
	f.payload = string(bytes.Repeat([]byte("fragment"), length/8))
	return f
}

// All fragments of a packet, of every size, go where a whole packet of the flow
// goes, and arrive as they were sent.
func TestFragmentsFollowTheFirst(t *testing.T) {
	p, _ := newTestPlane(t)
	id := uint32(0)
	for _, c := range steerCases() {
		t.Run(c.String(), func(t *testing.T) {
			svc := c.service()
			update(t, p, svc)
			defer remove(t, p, svc.VIP)
			inside := *svc
			inside.Segment = lb.Segment{}
			for i, size := range []int{24, 256, 1400} {
				id++
				client := clientOf(c.vip, 3000+i)
				_, flow := run(t, p, c.flowPacket(client))
				for _, part := range split(packetOf(longFrame(&inside, client, min(4000, 6*size))), id, size) {
					wantSteered(t, p, c, part, flow)
				}
			}
		})
	}
}

// Fragments that can't be attributed are the kernel's, unless it would route them (TestUnserved).
func TestUnknownFragments(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		t.Run(family(vip), func(t *testing.T) {
			svc := manyBackends(vip, 3)
			update(t, p, svc)
			defer remove(t, p, svc.VIP)
			elsewhere, tagged := *svc, *svc
			elsewhere.Address = router(vip)
			tagged.Segment = segment(100)
			client := clientOf(vip, 4000)
			parts := func(svc *lb.Service, client netip.AddrPort, id uint32) [][]byte {
				var parts [][]byte
				for _, part := range split(packetOf(longFrame(svc, client, 400)), id, 200) {
					parts = append(parts, onWire(svc.Segment, part))
				}
				return parts
			}

			known := parts(svc, client, 1)
			wantExit(t, p, known[1], xdpPass, "pass_fragment") // before the first
			run(t, p, known[0])
			if verdict, _ := run(t, p, known[1]); verdict != xdpTX {
				t.Errorf("behind the first: verdict %d", verdict)
			}
			wantExit(t, p, parts(svc, client, 2)[1], xdpPass, "pass_fragment")
			other := netip.AddrPortFrom(router(vip), 1)
			wantExit(t, p, parts(svc, other, 1)[1], xdpPass, "pass_fragment")
			wantExit(t, p, parts(&tagged, client, 1)[1], xdpPass, "pass_fragment")
			wantExit(t, p, parts(&elsewhere, client, 3)[0], xdpPass, "pass_not_vip")
			wantExit(t, p, parts(&elsewhere, client, 3)[1], xdpPass, "pass_fragment")
		})
	}
}

// A first fragment to a port without a service isn't recorded.
func TestFragmentsOfNoService(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := manyBackends(vip4, 3)
	update(t, p, svc)
	other := *svc
	other.Port = 81
	for i, part := range split(packetOf(longFrame(&other, client4, 400)), 1, 200) {
		wantExit(t, p, onWire(svc.Segment, part), xdpPass, []string{"pass_not_vip", "pass_fragment"}[min(i, 1)])
	}
	var key table.BalancerFragmentKey
	if err := p.Tables.Maps.Fragments.NextKey(nil, &key); err == nil {
		t.Errorf("recorded is %+v", key)
	}
	short := split(packetOf(longFrame(svc, client4, 400)), 2, 8)
	wantExit(t, p, onWire(svc.Segment, short[0]), xdpPass, "pass_truncated") // RFC 1858: half a TCP header
	wantExit(t, p, onWire(svc.Segment, short[1]), xdpPass, "pass_fragment")
}

// A flood of first fragments doesn't end a packet in progress: half the table's size may come
// between its fragments.
func TestFragmentFlood(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := manyBackends(vip4, 3)
	svc.Protocol = lb.UDP
	update(t, p, svc)
	parts := split(packetOf(longFrame(svc, client4, 400)), 1, 200)
	run(t, p, onWire(svc.Segment, parts[0]))
	forged := onWire(svc.Segment, split(packetOf(longFrame(svc, clientOf(vip4, 1000), 400)), 2, 200)[0])
	for i := range p.Tables.Maps.Fragments.MaxEntries() / 2 {
		binary.BigEndian.PutUint32(forged[atIP+12:], 0x0a420000+i)
		fixChecksum(forged[atIP:])
		run(t, p, forged)
	}
	for _, part := range parts[1:] {
		if verdict, _ := run(t, p, onWire(svc.Segment, part)); verdict != xdpTX {
			t.Errorf("later fragment: verdict %d", verdict)
		}
	}
}

// A second first fragment with the same identification but other ports, forged or of another
// host behind the same address, doesn't redirect later fragments: they are dropped until the
// identification may be used again (RFC 4963).
func TestFragmentsWithOneIdentification(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		one, other := manyBackends(vip, 3), manyBackends(vip, 3)
		other.Port = 81
		update(t, p, one)
		update(t, p, other)
		client := clientOf(vip, 4000)
		parts := func(svc *lb.Service) (parts [][]byte) {
			for _, part := range split(packetOf(longFrame(svc, client, 400)), 7, 200) {
				parts = append(parts, onWire(svc.Segment, part))
			}
			return parts
		}
		first, second := parts(one), parts(other)
		wantForwarded := func(frames ...[]byte) {
			t.Helper()
			for _, frame := range frames {
				if verdict, _ := run(t, p, frame); verdict != xdpTX {
					t.Errorf("%s: verdict %d", vip, verdict)
				}
			}
		}
		var key table.BalancerFragmentKey
		later := func(milliseconds int) {
			t.Helper()
			var ports table.BalancerFragmentPorts
			must(t, p.Tables.Maps.Fragments.NextKey(nil, &key))
			must(t, p.Tables.Maps.Fragments.Lookup(key, &ports))
			ports.Seen -= uint32(milliseconds)
			must(t, p.Tables.Maps.Fragments.Put(key, ports))
		}
		wantForwarded(first[0], first[1], first[0], first[1])
		later(-1_000_000) // the record stays live however slow the test is
		wantForwarded(second[0])
		wantExit(t, p, first[1], xdpPass, "pass_fragment")
		later(1_000_000)
		wantForwarded(second[0], second[1])
		must(t, p.Tables.Maps.Fragments.Delete(key))
	}
}

// A tunnel's UDP over IPv6 has a right checksum also around what has none of its
// own to go by: fragments and ICMP errors, of even and odd lengths.
func TestTunnelledFragmentsAreSummed(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, forward := range []lb.Forward{lb.GUE, lb.VXLAN, lb.Geneve} {
		for _, vip := range []netip.Addr{vip4, vip6} {
			svc := manyBackends(vip, 0)
			svc.Forward = forward
			svc.Backends = reached(forward, []lb.Backend{{Address: backend6, Port: 80, Weight: 1}})
			update(t, p, svc)
			client := clientOf(vip, 4000)
			m := errorsOf(vip)[0]
			m.body = packetOf(serverFrame(svc.VIP, client))[:49]
			packets := [][]byte{packetOf(icmpFrame(router(vip), vip, lb.Segment{}, m))}
			for length := range 9 {
				f := longFrame(svc, client, 800)
				f.payload += strings.Repeat("x", length)
				packets = append(packets, split(packetOf(f), uint32(length), 400)...)
			}
			for i, packet := range packets {
				verdict, out := run(t, p, onWire(lb.Segment{}, packet))
				if verdict != xdpTX || !bytes.HasSuffix(out, packet) && len(packet) > 46 {
					t.Fatalf("%s %s: packet %d: verdict %d, % x", forward, family(vip), i, verdict, out)
				}
				ip := out[atIP:]
				udp := ip[40 : 40+binary.BigEndian.Uint16(ip[4:])]
				pseudo := slices.Concat(ip[8:40], ip[4:6], []byte{0, 17})
				if sum := sum16(slices.Concat(pseudo, udp)); sum != 0xffff || udp[6]|udp[7] == 0 {
					t.Errorf("%s %s: packet %d: checksum %x, sum %#x", forward, family(vip), i, udp[6:8], sum)
				}
			}
			remove(t, p, svc.VIP)
		}
	}
}
