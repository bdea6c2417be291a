// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Counters of one BPF program: one per-CPU counter for each value of a
// C enumeration, which also names it.
type Counters struct {
	names []string // by the counter's number
	table *ebpf.Map
}

// NewCounters returns the counters in table, a per-CPU array of uint64 whose key is the
// C enumeration enum. A value PREFIX_PASS_NOT_IP is called pass_not_ip; the
// last value, PREFIX_COUNT, is none.
func NewCounters(types *btf.Spec, enum, prefix string, table *ebpf.Map) (Counters, error) {
	var e *btf.Enum
	if err := types.TypeByName(enum, &e); err != nil {
		return Counters{}, fmt.Errorf("counter names: %w", err)
	}
	names := make([]string, len(e.Values)-1)
	for _, v := range e.Values {
		if v.Value < uint64(len(names)) {
			names[v.Value] = strings.ToLower(strings.TrimPrefix(v.Name, prefix))
		}
	}
	return Counters{names: names, table: table}, nil
}

// Read returns each counter's sum over the processors, by name.
func (s Counters) Read() (map[string]uint64, error) {
	processors, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("counters: %w", err)
	}
	numbers, values := make([]uint32, len(s.names)), make([]uint64, len(s.names)*processors)
	n, err := s.table.BatchLookup(new(ebpf.MapBatchCursor), numbers, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which says that these were the last ones
		return nil, fmt.Errorf("counters: %w", err)
	}
	if n != len(s.names) {
		return nil, fmt.Errorf("counters: the table has %d, want %d", n, len(s.names))
	}
	sums := make(map[string]uint64, n)
	for i, number := range numbers {
		for _, v := range values[i*processors : (i+1)*processors] {
			sums[s.names[number]] += v
		}
	}
	return sums, nil
}
