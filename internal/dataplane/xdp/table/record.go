// SPDX-License-Identifier: Apache-2.0

package table

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// flowBatch is how many flow records are read or deleted by one system call.
const flowBatch = 4096

// FlowTimeShift is FLOW_TIME_SHIFT of bpf/core/types.h.
const FlowTimeShift = 20

// FlowClock is the present time as flow records have it.
func FlowClock() (uint32, error) {
	now, err := ClientClock()
	return uint32(now >> FlowTimeShift), err
}

// FlowAge is how long a flow has been silent; 0 if it was seen since now.
func FlowAge(now, seen uint32) time.Duration {
	return time.Duration(max(int32(now-seen), 0)) << FlowTimeShift
}

// EachRecord calls yield with every element of a hash table. Elements that come
// and go meanwhile may be missed.
func EachRecord[T any](table *ebpf.Map, yield func(key uint64, record *T)) error {
	var cursor ebpf.MapBatchCursor
	size := min(flowBatch, table.MaxEntries())
	keys, records := make([]uint64, size), make([]T, size)
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

// Delete deletes an element of a hash table, if it is there.
func Delete(table *ebpf.Map, key any) error {
	if err := table.Delete(key); !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// DeleteOthers deletes the elements of a hash table whose keys are not wanted.
func DeleteOthers[K any](table *ebpf.Map, wanted func(K) bool) error {
	var key K
	var others []K
	it := table.Iterate()
	for it.Next(&key, new([]byte)) {
		if !wanted(key) {
			others = append(others, key)
		}
	}
	errs := []error{it.Err()}
	for _, key := range others {
		errs = append(errs, Delete(table, key))
	}
	return errors.Join(errs...)
}

// DeleteRecords deletes elements of a hash table and counts those that existed.
func DeleteRecords(table *ebpf.Map, keys []uint64) (deleted int, err error) {
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

// EachFlow calls yield with every flow record, by its key. A record that moves
// meanwhile from one table to the other may be seen twice.
func (t *Tables) EachFlow(yield func(key uint64, flow *BalancerFlow)) error {
	return errors.Join(EachRecord(t.Maps.Flows, yield), EachRecord(t.Maps.FlowsPending, yield))
}

// SelectFlows returns the keys of those flow records that are as wanted now.
func SelectFlows(t *Tables, keys []uint64, wanted func(*BalancerFlow) bool) ([]uint64, error) {
	var selected []uint64
	var flow BalancerFlow
	for _, key := range keys {
		err := t.Maps.Flows.Lookup(key, &flow)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			err = t.Maps.FlowsPending.Lookup(key, &flow)
		}
		switch {
		case err == nil && wanted(&flow):
			selected = append(selected, key)
		case err != nil && !errors.Is(err, ebpf.ErrKeyNotExist):
			return nil, fmt.Errorf("flow records: %w", err)
		}
	}
	return selected, nil
}

// DeleteFlows deletes flow records and counts those that existed.
func DeleteFlows(t *Tables, keys []uint64) (deleted int, err error) {
	deleted, err = DeleteRecords(t.Maps.Flows, keys)
	pending, errPending := DeleteRecords(t.Maps.FlowsPending, keys)
	return deleted + pending, errors.Join(err, errPending)
}

// IsReply reports whether the entry is that for packets of the server: each NAT session
// has two.
func IsReply(s *BalancerNatSession) bool {
	return s.Flags&uint8(BalancerNatFlagNAT_REPLY) != 0
}

// EachSession calls yield with both entries of every NAT session, by their keys. One
// that is confirmed meanwhile may be seen twice.
func (t *Tables) EachSession(yield func(key uint64, s *BalancerNatSession)) {
	for _, sessions := range SessionTables(t) {
		sessions.Each(yield)
	}
}

// SessionTables are both tables of sessions, in the order in which sessions move.
func SessionTables(t *Tables) [2]*Sessions { return [2]*Sessions{t.Pending, t.Sessions} }

// SessionTable is the table that has the entry.
func SessionTable(t *Tables, s *BalancerNatSession) *Sessions {
	if s.Flags&uint8(BalancerNatFlagNAT_PENDING) != 0 {
		return t.Pending
	}
	return t.Sessions
}

// AsFlow shows a session as a record of its flow.
func AsFlow(s *BalancerNatSession) BalancerFlow {
	f := BalancerFlow{Service: uint32(s.Service), Backend: s.Backend, Seen: s.Seen, Client: s.Client, Port: s.ClientPort}
	if BalancerNatState(s.State) == BalancerNatStateNAT_CLOSING {
		f.Closing = 1
	}
	return f
}

// ClientClock is the present time as records of clients have it.
func ClientClock() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0, fmt.Errorf("monotonic clock: %w", err)
	}
	return uint64(now.Nano()), nil
}
