// SPDX-License-Identifier: Apache-2.0

// Package chance lets fuzzers make up histories: what happens in them is drawn from
// the bytes that a fuzzer varies.
//
// It stands beside the story of DESIGN.md §1: tests of pure packages use it.
package chance

import (
	"encoding/binary"
	"math/rand/v2"
)

// Fed returns randomness that a fuzzer feeds; when it has nothing left chance goes
// on, the same for data of the same length.
func Fed(data []byte) *rand.Rand {
	return rand.New(&bytes{data, rand.NewPCG(uint64(len(data)), 0)})
}

type bytes struct {
	left []byte
	rest rand.Source
}

// Uint64 takes two bytes for a number.
func (b *bytes) Uint64() uint64 {
	if len(b.left) < 2 {
		return b.rest.Uint64()
	}
	n := binary.LittleEndian.Uint16(b.left)
	b.left = b.left[2:]
	return uint64(n) << 48 // bounded numbers are taken from the top
}
