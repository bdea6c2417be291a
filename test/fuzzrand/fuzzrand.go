// SPDX-License-Identifier: Apache-2.0

// Package fuzzrand is the shared part of random tests: their seed, their duration, and a
// source of randomness that is the input of a fuzz test.
package fuzzrand

import (
	"encoding/binary"
	"math/rand/v2"
)

// New returns random numbers taken from data. After the end of data a generator with a
// fixed seed continues, so data of equal length ends in the same numbers.
func New(data []byte) *rand.Rand {
	return rand.New(&source{data, rand.NewPCG(uint64(len(data)), 0)})
}

type source struct {
	left []byte
	rest rand.Source
}

// Uint64 consumes two bytes for a number.
func (s *source) Uint64() uint64 {
	if len(s.left) < 2 {
		return s.rest.Uint64()
	}
	n := binary.LittleEndian.Uint16(s.left)
	s.left = s.left[2:]
	return uint64(n) << 48 // bounded numbers use the high bits
}
