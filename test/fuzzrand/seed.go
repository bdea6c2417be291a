// SPDX-License-Identifier: Apache-2.0

package fuzzrand

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Seed is the seed of a random test: another one in each run, or a failed run's,
// from the environment's FAIRLEAD_SEED. A test that fails shows it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text, ok := os.LookupEnv("FAIRLEAD_SEED"); ok {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("FAIRLEAD_SEED: %v", err)
		}
	}
	t.Logf("FAIRLEAD_SEED=%d", seed)
	return seed
}

// Duration is how long a random test runs: the environment's FAIRLEAD_FUZZ, such as 60s, or
// else the default.
func Duration(t testing.TB, standard time.Duration) time.Duration {
	t.Helper()
	text, ok := os.LookupEnv("FAIRLEAD_FUZZ")
	if !ok {
		return standard
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("FAIRLEAD_FUZZ: %v", err)
	}
	return d
}

// Covered reports how much a random test ran, when it ends: so many runs, such as histories, of so
// many steps in all. The summary of make test lists it.
func Covered(t testing.TB, runs, steps int) {
	t.Helper()
	t.Attr("covered", fmt.Sprintf("%d runs, %d steps", runs, steps))
}
