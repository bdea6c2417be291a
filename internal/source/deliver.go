// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"log/slog"
	"time"

	"fairlead.io/fairlead/internal/wait"
)

// StartTimeout is how long a starting agent waits for the API server before it serves the
// saved state.
const StartTimeout = 2 * time.Second

// RetryDelay is the backoff after what failed at an API server, or was rejected: a recovered API
// server is detected within a few seconds.
func RetryDelay() wait.Backoff {
	return wait.Backoff{First: 250 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.5}
}

// Deliver has apply deliver all services first, and then, until ctx ends, what has changed whenever
// wake is signalled. After a rejected change it has all services delivered, until they are accepted.
func Deliver(ctx context.Context, wake <-chan struct{}, apply func(whole bool) error, log *slog.Logger) {
	for rejected, whole := 0, true; ; whole = rejected > 0 {
		var retry <-chan time.Time
		if err := apply(whole); err != nil {
			log.Error("change rejected, retrying", "error", err)
			rejected++
			retry = time.After(RetryDelay().Delay(rejected))
		} else {
			rejected = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-retry:
		}
	}
}

// Await waits until a condition holds, which may be so after each signal of wake, until a time (zero: without limit), or
// until ctx ends. It reports whether the condition holds.
func Await(ctx context.Context, wake <-chan struct{}, until time.Time, holds func() bool) bool {
	var over <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		over = timer.C
	}
	for !holds() {
		select {
		case <-wake:
		case <-over:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}
