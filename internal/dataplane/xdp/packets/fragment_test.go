// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
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

// fragmentsOf are frames with the fragments of a packet of a flow.
func fragmentsOf(svc *lb.Service, client netip.AddrPort, id uint32, size int) (frames [][]byte) {
	for _, part := range split(packetOf(longFrame(svc, client, 400)), id, size) {
		frames = append(frames, onWire(svc.Segment, part))
	}
	return frames
}

// Fragments that can't be attributed are the kernel's, unless it would route them (TestUnserved).
func TestUnknownFragments(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		t.Run(family(vip), func(t *testing.T) {
			svc := manyBackends(vip, 3)
			svc.Segment = segment(100)
			update(t, p, svc)
			defer remove(t, p, svc.VIP)
			elsewhere := *svc
			elsewhere.Address = router(vip)
			client := clientOf(vip, 4000)
			known := fragmentsOf(svc, client, 1, 200)
			wantExit(t, p, known[1], xdpPass, "pass_fragment") // before the first
			run(t, p, known[0])
			wantVerdict(t, p, known[1], xdpTX, "forward_l2dsr")
			wantExit(t, p, fragmentsOf(svc, client, 2, 200)[1], xdpPass, "pass_fragment")
			other := netip.AddrPortFrom(router(vip), 1)
			wantExit(t, p, fragmentsOf(svc, other, 1, 200)[1], xdpPass, "pass_fragment")
			for _, network := range []lb.Segment{{}, segment(200)} {
				tenant := *svc
				tenant.Segment = network
				wantExit(t, p, fragmentsOf(&tenant, client, 1, 200)[1], xdpPass, "pass_fragment")
			}
			unserved := fragmentsOf(&elsewhere, client, 3, 200)
			wantExit(t, p, unserved[0], xdpPass, "pass_not_vip")
			wantExit(t, p, unserved[1], xdpPass, "pass_fragment")
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
	for i, part := range fragmentsOf(&other, client4, 1, 200) {
		wantExit(t, p, part, xdpPass, []string{"pass_not_vip", "pass_fragment"}[min(i, 1)])
	}
	var key table.BalancerFragmentKey
	if err := p.Tables.Maps.Fragments.NextKey(nil, &key); err == nil {
		t.Errorf("recorded is %+v", key)
	}
	short := fragmentsOf(svc, client4, 2, 8)
	wantExit(t, p, short[0], xdpPass, "pass_truncated") // RFC 1858: half a TCP header
	wantExit(t, p, short[1], xdpPass, "pass_fragment")
}

// A flood of first fragments doesn't end a packet in progress: half the table's size may come
// between its fragments.
func TestFragmentFlood(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := manyBackends(vip4, 3)
	svc.Protocol = lb.UDP
	update(t, p, svc)
	parts := fragmentsOf(svc, client4, 1, 200)
	run(t, p, parts[0])
	forged := fragmentsOf(svc, clientOf(vip4, 1000), 2, 200)[0]
	for i := range p.Tables.Maps.Fragments.MaxEntries() / 2 {
		binary.BigEndian.PutUint32(forged[atIP+12:], 0x0a420000+i)
		fixChecksum(forged[atIP:])
		run(t, p, forged)
	}
	for _, part := range parts[1:] {
		wantVerdict(t, p, part, xdpTX, "forward_l2dsr")
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
		first, second := fragmentsOf(one, client, 7, 200), fragmentsOf(other, client, 7, 200)
		wantForwarded := func(frames ...[]byte) {
			t.Helper()
			for _, frame := range frames {
				wantVerdict(t, p, frame, xdpTX, "forward_l2dsr")
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
