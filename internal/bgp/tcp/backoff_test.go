// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	var b Backoff
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		want *= time.Millisecond
		if got := b.Next(0); got > want || got <= want*3/4 {
			t.Errorf("%s, want %s or up to a quarter less", got, want)
		}
	}
	if got := b.Next(lasting - 1); got <= maxPause*3/4 {
		t.Errorf("%s after a session that didn't last", got)
	}
	if got := b.Next(lasting); got > minPause {
		t.Errorf("%s after one that did", got)
	}
}
