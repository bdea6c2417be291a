// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Sink counts the frames that arrive at an interface and drops them.
type Sink struct {
	objects struct {
		Swallow  *ebpf.Program `ebpf:"swallow"`
		Received *ebpf.Map     `ebpf:"received"`
	}
}

// Received counts received frames, and the bytes in them.
type Received struct {
	Frames, Bytes uint64
}

// AttachSink makes the interface of this index, in the calling thread's network
// namespace, a sink for as long as the interface lives, in place of any other XDP
// program.
func AttachSink(ifindex int) (*Sink, error) {
	s := &Sink{}
	if err := loadWireObjects(&s.objects, nil); err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	if err := attachXDP(ifindex, s.objects.Swallow); err != nil {
		return nil, fmt.Errorf("sink: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

// Received counts everything since AttachSink.
func (s *Sink) Received() (Received, error) {
	var perCPU []wireReceived
	if err := s.objects.Received.Lookup(uint32(0), &perCPU); err != nil {
		return Received{}, fmt.Errorf("sink: %w", err)
	}
	var sum Received
	for _, r := range perCPU {
		sum.Frames += r.Frames
		sum.Bytes += r.Bytes
	}
	return sum, nil
}

// Close ends counting; the interface still drops frames.
func (s *Sink) Close() error {
	return errors.Join(s.objects.Swallow.Close(), s.objects.Received.Close())
}

// LoadBouncer returns a program that sends frames back where they came from with
// as little work as possible: the upper limit that measurements compare with. The
// caller closes it.
func LoadBouncer() (*ebpf.Program, error) {
	var programs struct {
		Bounce *ebpf.Program `ebpf:"bounce"`
	}
	if err := loadWireObjects(&programs, nil); err != nil {
		return nil, err
	}
	return programs.Bounce, nil
}

// AttachBouncer makes the interface of this index, in the calling thread's
// network namespace, return every frame for as long as the interface lives.
func AttachBouncer(ifindex int) error {
	program, err := LoadBouncer()
	return attachOnly(ifindex, "bouncer", program, err)
}
