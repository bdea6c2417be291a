// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sync/errgroup"

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
// packets see that service: also the program that an earlier agent left running.
func (p *Plane) prepare(svc *lb.Service) error {
	f := featuresOf(svc)
	switch {
	case len(p.attachments) > 0 && f&^p.kernel.features != 0:
		return p.run(p.needs.needed() | f)
	case len(p.attachments) == 0 && p.inherits && f&^p.inherited != 0:
		return p.takeOver(p.needs.needed() | f)
	}
	return nil // Attach knows better what is needed
}

// takeOver replaces the programs that an earlier agent left running.
func (p *Plane) takeOver(f features) error {
	if err := p.run(f); err != nil {
		return err
	}
	p.inherits = false
	pins, err := linkPins(p.config.PinDir)
	if err != nil {
		return err
	}
	for _, pin := range pins {
		if slices.Contains(p.config.Interfaces, linkInterface(pin)) {
			if err := p.attach(linkInterface(pin)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inherit finds out what the programs contain that an earlier agent left
// running on the same tables: all of them, as packets may come to any.
func (p *Plane) inherit() error {
	pins, err := linkPins(p.config.PinDir)
	if err != nil {
		return err
	}
	p.inherited = allFeatures
	for _, pin := range pins {
		f, err := runningFeatures(pin)
		if err != nil {
			return err
		}
		p.inherits = true
		p.inherited &= f
	}
	return nil
}

// runningFeatures reads the features of the program behind a pinned link from
// the program's name; none if it says nothing.
func runningFeatures(pin string) (features, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return 0, fmt.Errorf("pinned link %s: %w", pin, err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("pinned link %s: %w", pin, err)
	}
	program, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return 0, nil // the interface is gone, and the program with it
	}
	defer program.Close()
	about, err := program.Info()
	if err != nil {
		return 0, fmt.Errorf("pinned link %s: %w", pin, err)
	}
	var f features
	if _, err := fmt.Sscanf(about.Name, programName, &f); err != nil {
		return 0, nil // another layout's
	}
	return f, nil
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
	next, err := p.tested(f)
	if err != nil {
		return err
	}
	for _, a := range p.attachments {
		if err := a.link.Update(next); err != nil {
			return errors.Join(fmt.Errorf("interface %s: replace program: %w", a.Interface, err), next.Close())
		}
	}
	old, before := p.kernel.program, p.kernel.features
	p.kernel.program, p.kernel.features = next, f
	if old == nil {
		return nil
	}
	if p.config.Replaced != nil {
		p.config.Replaced(replacement(before, f))
	}
	return old.Close()
}

// tested loads a program with these features, and tests it meanwhile on tables of
// its own: the kernel takes most of a start's time to verify a program.
func (p *Plane) tested(f features) (*ebpf.Program, error) {
	var test errgroup.Group
	if !p.config.untested {
		test.Go(func() error { return selfTest(f, p.seed) })
	}
	program, err := p.kernel.compile(f)
	if failed := test.Wait(); failed != nil && err == nil {
		return nil, errors.Join(failed, program.Close())
	}
	return program, err
}

// trim removes what no service needs any more from the program in use, and
// programs that hand nothing over any more.
func (p *Plane) trim() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.attachments) == 0 {
		return nil
	}
	return errors.Join(p.specialise(), p.trimHandover())
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
