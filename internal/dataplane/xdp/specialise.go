// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/lb"
)

// featureCounts counts the services that need each feature, by its bit.
type featureCounts [32]int

// replace takes a service from those that need some features to those that need
// others.
func (c *featureCounts) replace(from, to features) {
	for bit := range c {
		if from>>bit&1 != 0 {
			c[bit]--
		}
		if to>>bit&1 != 0 {
			c[bit]++
		}
	}
}

// needed is what at least one service needs.
func (c *featureCounts) needed() features {
	var f features
	for bit, n := range c {
		if n > 0 {
			f |= 1 << bit
		}
	}
	return f
}

// prepare makes sure that the program in use can serve one more service, before
// packets see that service.
func (p *Plane) prepare(svc *lb.Service) error {
	if len(p.attachments) == 0 {
		return nil // Attach knows better what is needed
	}
	if f := featuresOf(svc); f&^p.kernel.features != 0 {
		return p.run(p.needs.needed() | f)
	}
	return nil
}

// specialise makes the program in use one that has what services need, and
// nothing else (DESIGN.md §5).
func (p *Plane) specialise() error {
	if need := p.needs.needed(); p.kernel.program == nil || need != p.kernel.features {
		return p.run(need)
	}
	return nil
}

// run puts a program with these features in the place of the one in use, on all
// interfaces: one atomic step for each, so not a packet goes without. A program
// that fails its test, or that the kernel refuses, is never seen by a packet.
func (p *Plane) run(f features) error {
	if !p.config.untested {
		if err := selfTest(f, p.seed); err != nil {
			return err
		}
	}
	next, err := p.kernel.compile(f)
	if err != nil {
		return err
	}
	for _, a := range p.attachments {
		if err := a.link.Update(next); err != nil {
			// Those before run a program that serves at least as much.
			return fmt.Errorf("interface %s: replace program: %w", a.Interface, err)
		}
	}
	old, before := p.kernel.program, p.kernel.features
	p.kernel.program, p.kernel.features = next, f
	if old == nil {
		return nil
	}
	p.config.Log.Info("program replaced", "features", f, "before", before)
	return old.Close()
}

// trim removes what no service needs any more from the program in use.
func (p *Plane) trim() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.attachments) == 0 {
		return nil
	}
	return p.specialise()
}

// loaded returns a program that suits the services.
func (p *Plane) loaded() (*ebpf.Program, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if err := p.specialise(); err != nil {
		return nil, err
	}
	return p.kernel.program, nil
}
