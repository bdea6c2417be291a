// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Await calls condition until it returns nil, and fails the test with the last
// error if that takes longer than timeout.
func Await(t testing.TB, timeout time.Duration, what string, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := await(ctx, condition); err != nil {
		t.Fatalf("waited %s in vain for %s: %v", timeout, what, err)
	}
}

// await calls condition until it returns nil or ctx ends, and returns its last
// error.
func await(ctx context.Context, condition func() error) error {
	const pause = 50 * time.Millisecond
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(err, cause) {
				err = fmt.Errorf("%w: %w", cause, err)
			}
			return err
		case <-ticker.C:
		}
	}
}
