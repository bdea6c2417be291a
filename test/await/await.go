// SPDX-License-Identifier: Apache-2.0

// Package await waits in tests for conditions that other goroutines or processes bring about.
package await

import (
	"testing"
	"time"
)

// pause is the time between two looks at a condition.
const pause = 5 * time.Millisecond

// True waits until a condition holds, and fails the test if it doesn't within the limit.
func True(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

// Equal waits until get returns a value, and fails the test with the last one if it doesn't within the limit.
func Equal[T comparable](t testing.TB, limit time.Duration, what string, want T, get func() T) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(pause) {
		got := get()
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: after %s\n%v\nwant\n%v", what, limit, got, want)
		}
	}
}

// Closed waits until a channel is closed or has a value.
func Closed[T any](t testing.TB, limit time.Duration, what string, c <-chan T) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(limit):
		t.Fatalf("%s: not within %s", what, limit)
	}
}
