// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/lb"
)

// MaxFlows is the largest number of flows: their ports end below 65536.
const MaxFlows = 1 << 28

// MaxSize is the size of the largest frame in bytes, without tag and frame check sequence.
const MaxSize = 1514

// sizesOfMix are the sizes of a Mix: packets of 40, 576 and 1500 bytes, of which Ethernet pads the
// small ones.
var sizesOfMix = [3]int{60, 590, MaxSize}

// Mix is the numbers of small, medium and large frames in a series that repeats.
type Mix [3]int

// frames is the length of the series.
func (m Mix) frames() int { return m[0] + m[1] + m[2] }

// minSizes are the sizes of Ethernet, IP and TCP headers.
const (
	minSize4 = 14 + 20 + 20
	minSize6 = 14 + 40 + 20
)

// Load describes packets; consecutive ones belong to different flows.
type Load struct {
	// Destination and Source are the frames' Ethernet addresses.
	Destination, Source lb.MAC
	// Client is the source address of flow 0, of the VIP's family; the next 65,535
	// flows have the next addresses, then the port is increased.
	Client netip.Addr
	// VIP is the destination of flow 0; its segment is ignored.
	VIP lb.VIP
	// VIPs is the number of VIPs, a power of two: flow i goes to the address VIP plus
	// i % VIPs.
	VIPs int
	// Flows is a power of two, at most MaxFlows.
	Flows int
	// Size of every frame, or 0 and a Mix, without tag and frame check sequence.
	Size int
	Mix  Mix
	// VLAN is the ID of the frames' tag (IEEE 802.1Q), up to 4094; 0: no tag.
	VLAN uint16
	// SYN makes TCP packets SYNs; otherwise they are ACKs.
	SYN bool
}

func (l *Load) check() error {
	smallest := minSize4
	if l.VIP.Address.Is6() {
		smallest = minSize6
	}
	switch {
	case l.Client.Is4() != l.VIP.Address.Is4():
		return fmt.Errorf("client %s and VIP %s are of two families", l.Client, l.VIP.Address)
	case l.Flows < 1 || l.Flows > MaxFlows || bits.OnesCount(uint(l.Flows)) != 1:
		return fmt.Errorf("%d flows: want a power of two up to %d", l.Flows, MaxFlows)
	case l.VIPs < 1 || l.VIPs > l.Flows || bits.OnesCount(uint(l.VIPs)) != 1:
		return fmt.Errorf("%d VIPs: want a power of two up to the number of flows", l.VIPs)
	case l.VLAN > maxVLAN:
		return fmt.Errorf("vlan id %d: want up to %d", l.VLAN, maxVLAN)
	case (l.Size == 0) != (l.Mix.frames() > 0):
		return fmt.Errorf("want a size or a mix of frames")
	case l.Size != 0 && (l.Size < smallest || l.Size > MaxSize):
		return fmt.Errorf("frames of %d bytes: want %d to %d", l.Size, smallest, MaxSize)
	}
	return nil
}

// MeanSize is the mean size of the frames in bytes, with tag and frame check sequence.
func (l *Load) MeanSize() float64 {
	const sequence = 4
	size := float64(l.Size + l.tag() + sequence)
	for i, n := range l.Mix {
		size += float64(n*sizesOfMix[i]) / float64(max(1, l.Mix.frames()))
	}
	return size
}

// tag is the size of the frames' tag in bytes.
func (l *Load) tag() int {
	if l.VLAN == 0 {
		return 0
	}
	return 4
}

// constants is the load in the program's form; ifindex is the sending interface's.
func (l *Load) constants(ifindex int) wireLoadShape {
	c := wireLoadShape{
		Protocol: uint8(l.VIP.Protocol),
		Port:     bits.ReverseBytes16(l.VIP.Port), // wire order
		Vlan:     bits.ReverseBytes16(l.VLAN),
		Size:     uint16(l.Size),
		Mix:      [3]uint16{uint16(l.Mix[0]), uint16(l.Mix[1]), uint16(l.Mix[2])},
		FlowBits: uint32(bits.TrailingZeros(uint(l.Flows))),
		Vips:     uint32(l.VIPs),
		Ifindex:  uint32(ifindex),
	}
	client, vip := l.Client.As16(), l.VIP.Address.As16()
	fill(c.Macs[:], append(l.Destination[:], l.Source[:]...))
	fill(c.Client[:], client[:])
	fill(c.Vip[:], vip[:])
	if l.VIP.Address.Is6() {
		c.Ipv6 = 1
	}
	if l.SYN {
		c.Syn = 1
	}
	for i := range 3 {
		c.PrefixSum += c.Client[i]&0xffff + c.Client[i]>>16 + c.Vip[i]&0xffff + c.Vip[i]>>16
	}
	return c
}

// fill copies bytes into words.
func fill(words []uint32, bytes []byte) {
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(bytes[4*i:])
	}
}

func (l *Load) specification(ifindex int) (*ebpf.CollectionSpec, error) {
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	spec, err := loadWire()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[wireVarLoad].Set(l.constants(ifindex)); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return spec, nil
}
