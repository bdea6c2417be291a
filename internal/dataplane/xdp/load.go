// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"sync"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
)

// loader loads programs, which takes the kernel's verifier and the self-test hundreds of
// milliseconds, without the plane's mu: changes that need no other program are made
// meanwhile.
type loader struct {
	p *Plane
	// mu is held while programs are loaded, and while the program in use, or the tracer,
	// has to stay. It is locked before the plane's mu, if both are.
	mu sync.Mutex
}

// program loads a program with what services and f need, until suits reports that the one
// in use is right, and then calls use. Both are called with the plane's mu held. A program
// that lacks by then what services need is not used.
func (l *loader) program(ctx context.Context, f program.Features, suits func() bool, use func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.p
	var next *ebpf.Program
	var features program.Features
	for {
		p.mu.Lock()
		err := p.ready(ctx)
		if err == nil && next != nil && (p.programs.Needs()|f)&^features == 0 {
			err = p.programs.Use(next, features)
			next = nil
		}
		if next != nil {
			err = errors.Join(err, next.Close())
			next = nil
		}
		done := err != nil || suits()
		if err == nil && done {
			err = use()
		}
		features = p.programs.Needs() | f
		p.mu.Unlock()
		if done {
			return err
		}
		if next, err = p.programs.Compile(features); err != nil {
			return err
		}
	}
}

// handover loads the programs for devices, which Plane.handOver needs with mu held.
func (l *loader) handover(devices []handoverDevice) error {
	if len(devices) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(context.Background()); err != nil {
		return err
	}
	return l.p.handover.Load()
}

// ready is the plane's.
func (l *loader) ready(ctx context.Context) error {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.p.ready(ctx)
}
