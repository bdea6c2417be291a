// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"sync"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
)

// loader loads programs, which takes the kernel's verifier and the self-test hundreds of
// milliseconds, without the plane's mu: changes that need no other program are made
// meanwhile.
type loader struct {
	catalog  *catalog
	programs *program.Set
	handover *program.Handover
	// mu is held while programs are loaded, and while the program in use, or the tracer,
	// has to stay. It is locked before the plane's mu, if both are.
	mu sync.Mutex
	// prepared is a program with these features that isn't in use yet, or nil.
	prepared *ebpf.Program
	features program.Features
}

// prepare loads the program that services need, for when it is put to use.
func (l *loader) prepare(services []*lb.Service) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.ready(context.Background()), l.discard()); err != nil {
		return err
	}
	l.features = 0
	for _, svc := range services {
		l.features |= propertiesOf(svc).needs()
	}
	l.prepared, err = l.programs.Compile(l.features)
	return err
}

// compile returns a program with these features: the prepared one, if it has them.
func (l *loader) compile(f program.Features) (*ebpf.Program, error) {
	if next := l.prepared; next != nil && l.features == f {
		l.prepared = nil
		return next, nil
	}
	if err := l.discard(); err != nil {
		return nil, err
	}
	return l.programs.Compile(f)
}

// discard closes the prepared program.
func (l *loader) discard() error {
	if l.prepared == nil {
		return nil
	}
	err := l.prepared.Close()
	l.prepared = nil
	return err
}

// program loads a program with f and the features that services need, until suits reports
// that the one in use is right, and then calls use. Both are called with the plane's mu
// held. A program that lacks a feature needed by then is not used.
func (l *loader) program(ctx context.Context, f program.Features, suits func() bool, use func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next *ebpf.Program
	var features program.Features
	for {
		l.catalog.mu.Lock()
		err := l.catalog.ready(ctx)
		if err == nil && next != nil && (l.programs.Needs()|f)&^features == 0 {
			err = l.programs.Use(next, features)
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
		features = l.programs.Needs() | f
		l.catalog.mu.Unlock()
		if done {
			return err
		}
		if next, err = l.compile(features); err != nil {
			return err
		}
	}
}

// loadHandover loads the programs for devices, which handOver needs with mu held.
func (l *loader) loadHandover(devices []handoverDevice) error {
	if len(devices) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(context.Background()); err != nil {
		return err
	}
	return l.handover.Load()
}

// trim removes features that no service needs any more from the program in use, and
// detaches programs from devices at which nothing is handed over any more.
func (l *loader) trim(r Resolver) error {
	attached := l.programs.Attached
	return l.program(context.Background(), 0, func() bool { return !attached() || l.programs.Suits() }, func() error {
		if !attached() {
			return nil
		}
		return l.handover.Retain(usedDevices(l.catalog.services, r))
	})
}

// ready is catalog.ready.
func (l *loader) ready(ctx context.Context) error {
	return l.catalog.with(ctx, func() error { return nil })
}
