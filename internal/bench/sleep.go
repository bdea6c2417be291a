// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"time"
)

// Sleep waits for some time, or until ctx ends, which it returns as an error.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
