// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"bytes"
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// The exits to backends of services whose packets are translated.
const (
	exitNAT   = "forward_nat"
	exitRelay = "forward_relay"
)

// testRelayed checks a client's frame on its way to another node: nothing but its
// link layer and the hop limit differ.
func testRelayed(in, out []byte) error {
	want, err := rebuilt(in, 63, false)
	if err == nil && !bytes.Equal(out[12:], want[12:]) {
		err = fmt.Errorf("frame % x, want % x behind its addresses", out, want)
	}
	return err
}

// testSession checks a client's frame as NAT has made it: its checksums, and that
// the server's answer comes back to the client as from the VIP.
func (p *Plane) testSession(in, out []byte) error {
	sound, err := rebuilt(out, 63, false)
	if err != nil {
		return err
	}
	if !bytes.Equal(sound, out) {
		return fmt.Errorf("frame % x, want % x", out, sound)
	}
	answer, err := rebuilt(out, 64, true)
	if err != nil {
		return err
	}
	want, err := rebuilt(in, 63, true)
	if err != nil {
		return err
	}
	verdict, back, err := testRun(p.kernel.program, answer)
	if err == nil && (verdict != xdpTX || !bytes.Equal(back, want)) {
		err = fmt.Errorf("answer: verdict %d, frame % x, want % x", verdict, back, want)
	}
	return err
}

// rebuilt is an untagged TCP frame with that TTL or hop limit, and its checksums
// computed anew; if it is turned, as its receiver would send it back.
func rebuilt(frame []byte, hops uint8, turned bool) ([]byte, error) {
	decoded := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if failed := decoded.ErrorLayer(); failed != nil {
		return nil, failed.Error()
	}
	var stack []gopacket.SerializableLayer
	for _, layer := range decoded.Layers() {
		if turned {
			turnLayer(layer)
		}
		switch l := layer.(type) {
		case *layers.IPv4:
			l.TTL = hops
		case *layers.IPv6:
			l.HopLimit = hops
		case *layers.TCP:
			if err := l.SetNetworkLayerForChecksum(decoded.NetworkLayer()); err != nil {
				return nil, err
			}
		}
		if l, ok := layer.(gopacket.SerializableLayer); ok {
			stack = append(stack, l)
		}
	}
	buffer := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{ComputeChecksums: true}, stack...)
	return buffer.Bytes(), err
}

// turnLayer exchanges source and destination.
func turnLayer(layer gopacket.Layer) {
	switch l := layer.(type) {
	case *layers.Ethernet:
		l.SrcMAC, l.DstMAC = l.DstMAC, l.SrcMAC
	case *layers.IPv4:
		l.SrcIP, l.DstIP = l.DstIP, l.SrcIP
	case *layers.IPv6:
		l.SrcIP, l.DstIP = l.DstIP, l.SrcIP
	case *layers.TCP:
		l.SrcPort, l.DstPort = l.DstPort, l.SrcPort
	}
}
