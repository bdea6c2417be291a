// SPDX-License-Identifier: Apache-2.0

package generator

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// MinFrames is the smallest number of frames of which the pace can be told:
// twice MARK_DISTANCE of bpf/load.h.
const MinFrames = 2 * 1024

// marks are the moments at which the program made two of a run's packets, far
// apart.
type marks struct {
	FirstMark *ebpf.Variable `ebpf:"first_mark"`
	LastMark  *ebpf.Variable `ebpf:"last_mark"`
}

// clear forgets the marks of the last run.
func (m *marks) clear() error { return m.FirstMark.Set(generatorMark{}) }

// pace is the time from one packet to the next one in nanoseconds.
func (m *marks) pace() (float64, error) {
	var first, last generatorMark
	if err := errors.Join(m.FirstMark.Get(&first), m.LastMark.Get(&last)); err != nil {
		return 0, err
	}
	if first.Time == 0 || last.Sequence == first.Sequence {
		return 0, fmt.Errorf("too few frames to measure: want at least %d", MinFrames)
	}
	return float64(last.Time-first.Time) / float64(last.Sequence-first.Sequence), nil
}
