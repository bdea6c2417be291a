// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// liveFrames is BPF_F_TEST_XDP_LIVE_FRAMES of linux/bpf.h: the verdicts take effect, as
// if a driver had received the frames.
const liveFrames = 1 << 1

// batch is the number of frames that the kernel handles at once, as in a driver's poll.
const batch = 64

// ErrNoLiveFrames means that the kernel can't send frames from a program run.
var ErrNoLiveFrames = errors.New("kernel has no live frames in BPF_PROG_TEST_RUN: Linux 5.18 or newer is needed")

// Sender sends a load through an interface.
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
	size := cmp.Or(load.Size, MaxSize) // a mix is made of frames of the largest size
	s := &Sender{frame: make([]byte, size+load.tag())}
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
		return nil, fmt.Errorf("generator: %w", err)
	}
	return s, nil
}

// Send sends the next n frames of the load, at least MinFrames; the calling
// thread is in the interface's network namespace. Receivers process a batch on the
// same processor before the next one is sent, unless they defer work. The result is
// the time of one frame from sender to receiver, without the kernel's preparation and
// clean-up (tens of milliseconds).
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

// Sent is the number of frames sent so far.
func (s *Sender) Sent() (n uint64, err error) {
	err = s.objects.Sequence.Get(&n)
	return n, err
}

// Close frees the program.
func (s *Sender) Close() error { return s.objects.Transmit.Close() }

// Front feeds a load to a program without a network: BPF_PROG_TEST_RUN passes the same
// buffer to every run; the front writes the next packet into it and calls the program.
type Front struct {
	objects struct {
		Front  *ebpf.Program `ebpf:"front"`
		Behind *ebpf.Map     `ebpf:"behind"`
		marks
	}
	frame []byte
}

// NewFront returns a front for the program, which it doesn't own. The load has untagged frames
// of one size.
func NewFront(program *ebpf.Program, load Load) (*Front, error) {
	if load.Size == 0 || load.VLAN != 0 {
		return nil, errors.New("front: want untagged frames of one size")
	}
	spec, err := load.specification(0)
	if err != nil {
		return nil, err
	}
	f := &Front{frame: make([]byte, load.Size)}
	if err := spec.LoadAndAssign(&f.objects, nil); err != nil {
		return nil, fmt.Errorf("front: %w", err)
	}
	if err := f.objects.Behind.Put(uint32(0), program); err != nil {
		return nil, errors.Join(fmt.Errorf("front: program under test: %w", err), f.Close())
	}
	return f, nil
}

// Run feeds the next n packets of the load, at least MinFrames, to the program and
// returns the time per packet in nanoseconds, including the front's.
func (f *Front) Run(n int) (perPacket float64, err error) {
	if err := f.objects.clear(); err != nil {
		return 0, err
	}
	if _, err := f.objects.Front.Run(&ebpf.RunOptions{Data: f.frame, Repeat: uint32(n)}); err != nil {
		return 0, err
	}
	return f.objects.pace()
}

// Close frees the front.
func (f *Front) Close() error {
	return errors.Join(f.objects.Front.Close(), f.objects.Behind.Close())
}

// LoadBare returns a program that only returns XDP_TX, to measure the cost of a front.
// The caller closes it.
func LoadBare() (*ebpf.Program, error) {
	return loadConstant("bare", xdpTX)
}

// MinFrames is the smallest number of frames whose rate can be measured: twice
// MARK_DISTANCE of lab/bpf/load.h.
const MinFrames = 2 * 1024

// marks are the times at which the program made two packets of a run, far apart.
type marks struct {
	FirstMark *ebpf.Variable `ebpf:"first_mark"`
	LastMark  *ebpf.Variable `ebpf:"last_mark"`
}

// clear removes the marks of the last run.
func (m *marks) clear() error { return m.FirstMark.Set(wireMark{}) }

// pace is the time from one packet to the next one in nanoseconds.
func (m *marks) pace() (float64, error) {
	var first, last wireMark
	if err := errors.Join(m.FirstMark.Get(&first), m.LastMark.Get(&last)); err != nil {
		return 0, err
	}
	if first.Time == 0 || last.Sequence == first.Sequence {
		return 0, fmt.Errorf("too few frames to measure: want at least %d", MinFrames)
	}
	return float64(last.Time-first.Time) / float64(last.Sequence-first.Sequence), nil
}
