// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// mutate makes a packet out of one or two of those given.
func mutate(random *rand.Rand, seeds [][]byte) []byte {
	in := bytes.Clone(seeds[random.IntN(len(seeds))])
	for range random.IntN(5) {
		switch random.IntN(10) {
		case 0, 1:
			in = flip(random, in)
		case 2:
			in = in[:random.IntN(len(in)+1)]
		case 3:
			in = append(in, noise(random, random.IntN(fuzzPage))...)
		case 4:
			in = insert(random, in, minEthernet, tags(random))
		case 5:
			in = insert(random, in, afterIP(in), options(random))
		case 6:
			in = splice(random, in, seeds[random.IntN(len(seeds))])
		case 7:
			in = extend(random, in)
		case 8:
			in = header(random, in)
		case 9:
			in = fit(in)
		}
	}
	if len(in) < ethernetHeader {
		in = append(in, noise(random, ethernetHeader-len(in))...)
	}
	return in[:min(len(in), fuzzPage)]
}

// minEthernet is where the type of an untagged frame lies.
const minEthernet = 12

func noise(random *rand.Rand, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(random.Uint32())
	}
	return out
}

// flip changes a bit or a byte, most often within the headers.
func flip(random *rand.Rand, in []byte) []byte {
	if len(in) == 0 {
		return in
	}
	at := random.IntN(len(in))
	if random.IntN(4) > 0 {
		at %= 96
	}
	if random.IntN(2) == 0 {
		in[at] ^= 1 << random.IntN(8)
	} else {
		in[at] = byte(random.Uint32())
	}
	return in
}

// insert puts bytes into a frame, at its end if it is too short.
func insert(_ *rand.Rand, in []byte, at int, what []byte) []byte {
	return slices.Insert(in, min(at, len(in)), what...)
}

// tags are one to three VLAN tags, customers' or providers'.
func tags(random *rand.Rand) (out []byte) {
	for range 1 + random.IntN(3) {
		kind := []uint16{0x8100, 0x8100, 0x88a8}[random.IntN(3)]
		id := []uint16{0, 100, uint16(random.Uint32())}[random.IntN(3)]
		out = binary.BigEndian.AppendUint16(out, kind)
		out = binary.BigEndian.AppendUint16(out, id)
	}
	return out
}

// afterIP is where what follows an untagged frame's first IP header begins.
func afterIP(in []byte) int {
	if len(in) > atIP && in[atIP]>>4 == 6 {
		return atIP + 40
	}
	return atIP + 20
}

// options are as many words as IPv4 options, or IPv6 extension headers, may be.
func options(random *rand.Rand) []byte { return noise(random, 4*(1+random.IntN(20))) }

// splice continues with another packet from some place on.
func splice(random *rand.Rand, in, other []byte) []byte {
	return append(in[:random.IntN(len(in)+1)], other[random.IntN(len(other)):]...)
}

// extend puts a chain of IPv6 extension headers behind an IPv6 header, or
// options behind an IPv4 header, with lengths that are right.
func extend(random *rand.Rand, in []byte) []byte {
	if len(in) < atIP+40 {
		return in
	}
	if in[atIP]>>4 != 6 {
		words := 1 + random.IntN(10)
		in[atIP] = 0x45 + byte(words)
		return fit(insert(random, in, atIP+20, make([]byte, 4*words)))
	}
	for range 1 + random.IntN(12) {
		one := make([]byte, 8*(1+random.IntN(3)))
		one[0], one[1] = in[atNext6], byte(len(one)/8-1)
		in[atNext6] = []byte{0, 43, 44, 51, 60, 135, 139, 140}[random.IntN(8)]
		if in[atNext6] == 44 {
			one = append([]byte{one[0], 0, 0, byte(random.IntN(2))}, noise(random, 4)...)
		}
		in = insert(random, in, atIP+40, one)
	}
	return fit(in)
}

// header overwrites a field that decides how a packet is read.
func header(random *rand.Rand, in []byte) []byte {
	at := []int{minEthernet, minEthernet + 1, atIP, atLength4, atLength4 + 1, atFragment, atFragment + 1, atProtocol, atNext6, atIP + 8, afterIP(in), afterIP(in) + 1, afterIP(in) + 13}[random.IntN(13)]
	values := []byte{0, 1, 4, 6, 17, 41, 43, 44, 50, 51, 58, 60, 0x45, 0x46, 0x4f, 0x60, 0x20, 0x40, 0xff, byte(random.Uint32())}
	if at < len(in) {
		in[at] = values[random.IntN(len(values))]
	}
	return in
}

// fit makes an untagged frame's IP length what the frame has, so that the rest
// of it is looked at.
func fit(in []byte) []byte {
	switch {
	case len(in) < atIP+40:
	case in[atIP]>>4 == 4:
		binary.BigEndian.PutUint16(in[atLength4:], uint16(len(in)-atIP))
	case in[atIP]>>4 == 6:
		binary.BigEndian.PutUint16(in[atLength6:], uint16(len(in)-atIP-40))
	}
	return in
}
