// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fuzzrand"
)

// shapes are the kinds of services: TCP, and UDP with and without learning.
func shapes(random *rand.Rand, flows, backends int) []dataplanetest.Shape {
	var shape dataplanetest.Shape
	for range flows {
		shape.Flows = append(shape.Flows, dataplanetest.Flow{Key: random.Uint64(), Place: random.Uint32()})
	}
	for i := range backends {
		shape.Backends = append(shape.Backends, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 2, byte(i)}), 80))
	}
	var all []dataplanetest.Shape
	for kind := range 6 {
		s := shape
		s.Full = kind%2 == 1
		s.Datagrams = kind/2 > 0
		if kind/2 == 2 {
			s.Learn = dataplanetest.Learn
		}
		all = append(all, s)
	}
	return all
}

// Random histories: a live connection never moves while its backend lives, a
// learned UDP flow neither, new ones go where they may, and in the end nothing
// is left of the past.
func TestModelKeepsConnections(t *testing.T) {
	const histories, steps = 150, 120
	first := fuzzrand.Seed(t)
	for seed := first; seed < first+histories; seed++ {
		random := rand.New(rand.NewPCG(seed, 0))
		for kind, shape := range shapes(random, 24, 7) {
			if err := dataplanetest.NewHistory(random, shape, nil).Run(steps); err != nil {
				t.Fatalf("FAIRLEAD_SEED=%d, kind %d: %v", seed, kind, err)
			}
		}
	}
	fuzzrand.Covered(t, 6*histories, 6*histories*steps)
}

func FuzzModel(f *testing.F) {
	for kind := range uint8(6) {
		f.Add(kind, []byte(fmt.Sprintf("history %d, and what comes of it", kind)))
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		shape := shapes(rand.New(rand.NewPCG(7, 7)), 16, 5)[kind%6]
		random := fuzzrand.New(data)
		if err := dataplanetest.NewHistory(random, shape, nil).Run(60 + len(data)/4); err != nil {
			t.Fatal(err)
		}
	})
}
