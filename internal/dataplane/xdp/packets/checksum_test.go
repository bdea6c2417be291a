// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/lb"
)

// udpSum is the sum over a UDP datagram and its pseudo header in an untagged
// IPv6 frame, all of it read (RFC 1071): 0xffff if the checksum is right.
func udpSum(frame []byte) uint16 {
	const addresses, udp = atIP + 8, atIP + 40
	datagram := frame[udp:][:binary.BigEndian.Uint16(frame[udp+4:])]
	sum := uint32(len(datagram)) + uint32(layers.IPProtocolUDP)
	for _, part := range [][]byte{frame[addresses:udp], datagram} {
		for i, b := range part {
			sum += uint32(b) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// The checksum of a tunnel's UDP over IPv6 follows from the client's, whatever
// is in the packet; where the client's is missing, the packet is summed up.
func TestTunnelChecksum(t *testing.T) {
	p, _ := newTestPlane(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for _, forward := range []lb.Forward{lb.GUE, lb.VXLAN, lb.Geneve} {
		for _, c := range []struct {
			vip      lb.VIP
			unsummed bool
			surplus  bool // the IP packet is longer than the datagram (RFC 9868)
		}{
			{vip: lb.VIP{Address: vip4, Port: 80, Protocol: lb.TCP}},
			{vip: lb.VIP{Address: vip6, Port: 80, Protocol: lb.TCP}},
			{vip: lb.VIP{Address: vip4, Port: 80, Protocol: lb.UDP}},
			{vip: lb.VIP{Address: vip6, Port: 80, Protocol: lb.UDP}},
			{vip: lb.VIP{Address: vip4, Port: 80, Protocol: lb.UDP}, unsummed: true},
			{vip: lb.VIP{Address: vip4, Port: 80, Protocol: lb.UDP}, surplus: true},
			{vip: lb.VIP{Address: vip6, Port: 80, Protocol: lb.UDP}, surplus: true},
		} {
			svc := &lb.Service{VIP: c.vip, Forward: forward, MinHealthy: 1}
			svc.Backends = reached(forward, []lb.Backend{{Address: backend6, Port: 80, Weight: 1}})
			update(t, p, svc)
			for range 200 {
				in := randomPacket(random, c.vip, c.unsummed)
				if c.surplus {
					in = withSurplus(in, 1+random.IntN(9))
				}
				_, out := run(t, p, in)
				check := binary.BigEndian.Uint16(out[atIP+40+6:])
				if check == 0 || udpSum(out) != 0xffff {
					t.Fatalf("seed %d: %s to %s: checksum %04x, sum %04x\nof % x\nin % x", seed, forward, c.vip, check, udpSum(out), in, out)
				}
			}
			remove(t, p, c.vip)
		}
	}
}

// randomPacket is one of a client, with IPv4 options now and then, without a
// transport checksum if that is wanted.
func randomPacket(random *rand.Rand, vip lb.VIP, unsummed bool) []byte {
	f := clientFrame(vip, client6)
	if vip.Address.Is4() {
		f = clientFrame(vip, client4)
	}
	payload := strings.Builder{}
	for range 20 + random.IntN(1200) {
		payload.WriteByte(byte(random.Uint32()))
	}
	f.payload = payload.String()
	header := 40
	if ip, ok := f.ip[0].(*layers.IPv4); ok {
		header = 20
		if random.IntN(2) == 0 {
			ip.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
			header += 4
		}
	}
	frame := f.build()
	if unsummed {
		copy(frame[atIP+header+6:], []byte{0, 0})
	}
	return frame
}

// withSurplus appends bytes to a packet that its datagram doesn't have.
func withSurplus(frame []byte, n int) []byte {
	for range n {
		frame = append(frame, 0xa5)
	}
	ip := frame[atIP:]
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(n))
		return frame
	}
	binary.BigEndian.PutUint16(ip[2:], binary.BigEndian.Uint16(ip[2:])+uint16(n))
	fixChecksum(ip)
	return frame
}
