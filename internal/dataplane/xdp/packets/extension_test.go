// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// fragmentHeader is that of RFC 8200 §4.5; the field has the offset in bytes and
// "more" in its lowest bit.
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

// Whatever stands in front of the transport header, up to a bound, a packet goes
// where its flow goes.
func TestExtensionHeaders(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := manyBackends(vip6, 16)
	update(t, p, svc)
	plain := flowPacket(svc.VIP, client6)
	_, want := run(t, p, plain)
	frames := map[string][]byte{
		"long options": slices.Concat(plain[:atIP], withExtension(plain[atIP:], 60, optionsHeader(6, 1024))),
	}
	for _, kinds := range [][]byte{{0}, {43}, {60}, {51}, {44}, {0, 60}, {0, 60, 43, 44, 51, 60}} {
		frames[fmt.Sprintf("headers %d", kinds)] = chain(plain, kinds...)
	}
	for name, in := range frames {
		verdict, out := run(t, p, in)
		if verdict != xdpTX || !bytes.Equal(out[:12], want[:12]) || !bytes.Equal(out[12:], in[12:]) {
			t.Errorf("%s: verdict %d, frame % x, want it to go to % x", name, verdict, out, want[:12])
		}
	}
	for name, c := range map[string]struct {
		frame   []byte
		counter string
	}{
		"too many headers": {chain(plain, 0, 60, 60, 60, 60, 60, 60), "pass_extension_header"},
		"no next header":   {chain(changed(web6, client6, atNext6, 59), 60), "pass_not_tcp_udp"},
		"cut header":       {chain(plain, 60)[:atIP+55], "pass_truncated"},
	} {
		t.Run(name, func(t *testing.T) { wantExit(t, p, c.frame, xdpPass, c.counter) })
	}
}
