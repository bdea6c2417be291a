// SPDX-License-Identifier: Apache-2.0

package generator

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// xdpTX is XDP_TX of linux/bpf.h.
const xdpTX = 3

// Front puts a load into a program that is attached nowhere, without any
// network: BPF_PROG_TEST_RUN hands the same buffer to every run, and the front
// makes the next packet of it and calls the program.
type Front struct {
	objects struct {
		Front  *ebpf.Program `ebpf:"front"`
		Behind *ebpf.Map     `ebpf:"behind"`
		marks
	}
	frame []byte
}

// NewFront puts packets into the program; it does not own it. A load of mixed
// sizes is not possible.
func NewFront(program *ebpf.Program, load Load) (*Front, error) {
	if load.Size == Mix {
		return nil, errors.New("front: want frames of one size")
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
		return nil, errors.Join(fmt.Errorf("front: program behind it: %w", err), f.Close())
	}
	return f, nil
}

// Run puts the next n packets of the load into the program, at least MinFrames,
// and returns the time from one packet to the next one in nanoseconds, the
// front's own part included.
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

// LoadBare returns a program that does nothing but say XDP_TX: behind it, a
// front shows its own cost. The caller closes it.
func LoadBare() (*ebpf.Program, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "bare",
		Type:         ebpf.XDP,
		AttachType:   ebpf.AttachXDP, // as the front has; else it may not be called
		License:      "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpTX), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("bare program: %w", err)
	}
	return program, nil
}
