// SPDX-License-Identifier: Apache-2.0

package wait_test

import (
	"testing"
	"time"

	"fairlead.io/fairlead/internal/wait"
)

func TestDelay(t *testing.T) {
	b := wait.Backoff{First: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.25}
	for i, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		want *= time.Millisecond
		if got := b.Delay(i + 1); got > want || got <= want*3/4 {
			t.Errorf("after %d failures: %s, want %s or up to a quarter less", i+1, got, want)
		}
	}
	if got := b.Delay(1000); got > b.Max || got <= b.Max*3/4 {
		t.Errorf("after a thousand failures: %s", got)
	}
}
