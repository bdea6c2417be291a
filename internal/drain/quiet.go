// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
)

const (
	// quiet is how long no packet has to be forwarded for a node to count as
	// drained, sample how often there is a look.
	quiet  = time.Second
	sample = 200 * time.Millisecond
)

// AwaitQuiet waits until no packet has been forwarded to any backend for a
// second, or ctx ends: then it returns ctx's error. Without services it doesn't
// wait.
func AwaitQuiet(ctx context.Context, read func(context.Context) (dataplane.Stats, error)) error {
	tick := time.NewTicker(sample)
	defer tick.Stop()
	last, since := uint64(0), time.Now()
	for {
		stats, err := read(ctx)
		if err != nil {
			return err
		}
		if len(stats.Services) == 0 {
			return nil
		}
		if packets := forwarded(stats); packets != last {
			last, since = packets, time.Now()
		}
		if time.Since(since) >= quiet {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func forwarded(stats dataplane.Stats) uint64 {
	sum := uint64(0)
	for _, s := range stats.Services {
		sum += s.Packets
	}
	return sum
}
