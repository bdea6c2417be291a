// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// fragmentHeader returns the header of RFC 8200 §4.5; the field has the offset in
// bytes and "more" in its lowest bit.
func fragmentHeader(next byte, id uint32, field uint16) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16([]byte{next, 0}, field), id)
}

// optionsHeader has a length of a multiple of 8 bytes, filled with Pad1.
func optionsHeader(next byte, length int) []byte {
	return append([]byte{next, byte(length/8 - 1)}, make([]byte, length-2)...)
}

// withExtension puts one extension header behind the header of an IPv6 packet.
func withExtension(packet []byte, kind byte, header []byte) []byte {
	out := slices.Concat(packet[:40], header, packet[40:])
	out[6] = kind
	binary.BigEndian.PutUint16(out[4:], uint16(len(out)-40))
	return out
}

// chain puts extension headers of these kinds into a frame, the first kind
// outermost.
func chain(frame []byte, kinds ...byte) []byte {
	packet := frame[atIP:]
	for _, kind := range slices.Backward(kinds) {
		header := optionsHeader(packet[6], 16)
		switch kind {
		case 44:
			header = fragmentHeader(packet[6], 7, 0)
		case 51: // authentication: its length is in words of 4, less two
			header[1] = 16/4 - 2
		}
		packet = withExtension(packet, kind, header)
	}
	return slices.Concat(frame[:atIP], packet)
}

// withOptions is a packet with IPv4 options that need not be understood.
func withOptions(f frame) frame {
	f.ip[0].(*layers.IPv4).Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
	return f
}

// Whatever stands in front of the transport header, up to a bound, a packet goes where its
// flow goes, as it came. A priority tag (id 0) marks no network, and is taken off.
func TestLeadingHeaders(t *testing.T) {
	p, _ := newTestPlane(t)
	update(t, p, manyBackends(vip4, 16))
	update(t, p, manyBackends(vip6, 16))
	plain4, plain6 := flowPacket(web4, client4), flowPacket(web6, client6)
	wantForwarded := func(in, flow, rest []byte) {
		t.Helper()
		_, out := run(t, p, flow)
		wantBytes(t, p, in, slices.Concat(out[:12], rest), xdpTX, "forward_l2dsr")
	}
	wantForwarded(withTags(5<<13), plain4, plain4[12:])
	options := withOptions(clientFrame(web4, client4)).build()
	wantForwarded(options, plain4, options[12:])
	long := slices.Concat(plain6[:atIP], withExtension(plain6[atIP:], 60, optionsHeader(6, 1024)))
	wantForwarded(long, plain6, long[12:])
	for _, kinds := range [][]byte{{0}, {43}, {60}, {51}, {44}, {0, 60}, {0, 60, 43, 44, 51, 60}} {
		in := chain(plain6, kinds...)
		wantForwarded(in, plain6, in[12:])
	}
	wantExit(t, p, chain(plain6, 0, 60, 60, 60, 60, 60, 60), xdpPass, "pass_extension_header")
	wantExit(t, p, chain(changed(web6, client6, atNext6, 59), 60), xdpPass, "pass_not_tcp_udp")
	wantExit(t, p, chain(plain6, 60)[:atIP+55], xdpPass, "pass_truncated")
}
