// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// flowBatch is how many flow records are read or deleted by one system call.
const flowBatch = 4096

// flowTimeShift is FLOW_TIME_SHIFT of bpf/types.h.
const flowTimeShift = 20

// flowClock is the present time as flow records have it.
func flowClock() (uint32, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0, fmt.Errorf("monotonic clock: %w", err)
	}
	return uint32(now.Nano() >> flowTimeShift), nil
}

// flowAge is how long a flow has been silent; what was seen since now is 0 old.
func flowAge(now, seen uint32) time.Duration {
	return time.Duration(max(int32(now-seen), 0)) << flowTimeShift
}

// eachFlow calls yield with every flow record.
func (t *tables) eachFlow(yield func(key uint64, flow *balancerFlow)) error {
	return eachRecord(t.maps.Flows, yield)
}

// eachRecord calls yield with every element of a hash table. Elements that come
// and go meanwhile may be missed.
func eachRecord[T any](table *ebpf.Map, yield func(key uint64, record *T)) error {
	var cursor ebpf.MapBatchCursor
	keys := make([]uint64, flowBatch)
	records := make([]T, flowBatch)
	for {
		n, err := table.BatchLookup(&cursor, keys, records, nil)
		for i := range n {
			yield(keys[i], &records[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("records of %s: %w", table, err)
		}
	}
}

// deleteFlows deletes records; those that are gone already don't count.
func (t *tables) deleteFlows(keys []uint64) (deleted int, err error) {
	return deleteRecords(t.maps.Flows, keys)
}

func deleteRecords(table *ebpf.Map, keys []uint64) (deleted int, err error) {
	for _, key := range keys {
		err := table.Delete(key)
		switch {
		case err == nil:
			deleted++
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return deleted, fmt.Errorf("records of %s: %w", table, err)
		}
	}
	return deleted, nil
}

// flowCounts is what the agent knows of a service's flow records.
type flowCounts struct {
	present   int    // when they were last counted
	inserts   uint64 // at that time
	forgotten uint64 // deleted by this and earlier agents
}

// evicted counts the records that made room for others. Inserts are read before
// records are counted, so it never is too large.
func (c flowCounts) evicted() uint64 {
	known := c.forgotten + uint64(c.present)
	return max(c.inserts, known) - known
}
