// SPDX-License-Identifier: Apache-2.0

package generator

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// liveFrames is BPF_F_TEST_XDP_LIVE_FRAMES of linux/bpf.h: what the program says
// is done with the frames, as if a driver had received them.
const liveFrames = 1 << 1

// batch is the number of frames that the kernel handles at once, as a driver's
// poll does.
const batch = 64

// ErrNoLiveFrames says that the kernel can't send frames out of a program run.
var ErrNoLiveFrames = errors.New("kernel has no live frames in BPF_PROG_TEST_RUN: Linux 5.18 or newer is needed")

// Sender puts a load on a wire.
type Sender struct {
	objects struct {
		Transmit *ebpf.Program  `ebpf:"transmit"`
		Sequence *ebpf.Variable `ebpf:"sequence"`
		marks
	}
	frame []byte
}

// NewSender sends through the interface of this index. The interface's peer must
// take frames from XDP: a veth's needs an XDP program or receive offload.
func NewSender(ifindex int, load Load) (*Sender, error) {
	spec, err := load.specification(ifindex)
	if err != nil {
		return nil, err
	}
	size := load.Size
	if size == Mix {
		size = MaxSize
	}
	s := &Sender{frame: make([]byte, size)}
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
		return nil, fmt.Errorf("generator: %w", err)
	}
	return s, nil
}

// Send sends the next n frames of the load, at least MinFrames; the calling
// thread is in the interface's network namespace. What the receivers' network
// stacks do with a batch of frames is done before the next one is sent, on the
// same processor, unless they defer it. The result is the time that one frame
// took on its whole way, without what the kernel does before the first one and
// after the last (tens of milliseconds).
func (s *Sender) Send(n int) (perFrame float64, err error) {
	if err := s.objects.clear(); err != nil {
		return 0, err
	}
	_, err = s.objects.Transmit.Run(&ebpf.RunOptions{Data: s.frame, Repeat: uint32(n), Flags: liveFrames, BatchSize: batch})
	if errors.Is(err, unix.EINVAL) {
		return 0, fmt.Errorf("%w (%w)", ErrNoLiveFrames, err)
	}
	if err != nil {
		return 0, err
	}
	return s.objects.pace()
}

// Sent is the number of frames that have been sent.
func (s *Sender) Sent() (n uint64, err error) {
	err = s.objects.Sequence.Get(&n)
	return n, err
}

// Close frees the program.
func (s *Sender) Close() error { return s.objects.Transmit.Close() }
