// SPDX-License-Identifier: Apache-2.0

// Package await waits in tests for conditions that other goroutines or processes bring about.
package await

import (
	"testing"
	"time"
)

// Patience is how long a test waits for anything that has to come: on a machine that does much else, seconds
// become a minute. Only a test that fails waits so long.
const Patience = 3 * time.Minute

// pause is the time between two looks at a condition.
const pause = 5 * time.Millisecond

// Holds waits until a condition holds, and reports false if it doesn't within Patience.
func Holds(condition func() bool) bool {
	for deadline := time.Now().Add(Patience); !condition(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// True waits until a condition holds, and fails the test if it doesn't within Patience.
func True(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !Holds(condition) {
		t.Fatalf("%s: not within %s", what, Patience)
	}
}

// Equal waits until get returns a value, and fails the test with the last one if it doesn't within Patience.
func Equal[T comparable](t testing.TB, what string, want T, get func() T) {
	t.Helper()
	var got T
	if !Holds(func() bool { got = get(); return got == want }) {
		t.Fatalf("%s: after %s\n%v\nwant\n%v", what, Patience, got, want)
	}
}

// Closed waits until a channel is closed or has a value.
func Closed[T any](t testing.TB, what string, c <-chan T) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(Patience):
		t.Fatalf("%s: not within %s", what, Patience)
	}
}
