// SPDX-License-Identifier: Apache-2.0

// Package choose is the data plane that gives each service to one of several: to the first
// that can serve it. The agent uses it with the kinds auto and ipvs.
//
// Packets may reach an earlier data plane before a later one, as XDP runs before the network
// stack, so a service that changes its data plane is programmed on the new one before it is
// deleted from the old one. Its counters begin at 0 there.
package choose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Option is a data plane that services can be given to.
type Option struct {
	// Limits say which services it can serve. Their Kind names it.
	Limits dataplane.Limits
	// Open opens it when a service needs it; the first option at once. An option that isn't the
	// first can't be a dataplane.Attacher.
	Open func() (dataplane.DataPlane, error)
	// Used reports whether an earlier process may have left services in it.
	Used func() bool
}

// Plane implements dataplane.DataPlane, and its optional interfaces as far as the data
// planes have them.
type Plane struct {
	log     *slog.Logger
	stale   *dataplane.StaleQueue
	done    chan struct{}
	running sync.WaitGroup

	// opening is held while a data plane is opened.
	opening sync.Mutex
	mu      sync.Mutex
	closed  bool
	options []option
	// placed is the index of the only data plane that has a service; moving while it may be on
	// several.
	placed map[lb.VIP]int
	// changing are the services that a call changes; closed at its end.
	changing map[lb.VIP]chan struct{}
}

// moving is the place of a service that moves.
const moving = -1

// option is an Option as far as it is known.
type option struct {
	Option
	plane dataplane.DataPlane // nil until it is opened
	// failed is why it wasn't opened at the start, which isn't tried again.
	failed error
}

// Open opens the first option, or if that fails the next one: services then are never given
// to those before it. A data plane in which an earlier process may have left services has to
// open, as nothing else would keep them up to date.
func Open(log *slog.Logger, options ...Option) (*Plane, error) {
	p := &Plane{
		log: log, stale: dataplane.NewStaleQueue(), done: make(chan struct{}),
		placed: map[lb.VIP]int{}, changing: map[lb.VIP]chan struct{}{},
	}
	for _, o := range options {
		p.options = append(p.options, option{Option: o})
	}
	var failed []error
	for i := range p.options {
		_, err := p.open(i)
		if err == nil {
			return p, nil
		}
		failed = append(failed, err)
		if p.options[i].Used() {
			break
		}
		p.options[i].failed = err
	}
	return nil, errors.Join(append(failed, p.Close())...)
}

// open returns a data plane, which it opens if it isn't open yet.
func (p *Plane) open(i int) (dataplane.DataPlane, error) {
	p.opening.Lock()
	defer p.opening.Unlock()
	o := &p.options[i]
	if plane := p.opened(i); plane != nil {
		return plane, nil
	}
	plane, err := o.Open()
	if err != nil {
		return nil, fmt.Errorf("data plane %s: %w", o.Limits.Kind, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.Join(errClosed, plane.Close())
	}
	o.plane = plane
	p.running.Go(func() { p.passStale(plane.Stale()) })
	for _, before := range p.options[:i] {
		if before.failed != nil {
			p.log.Warn("data plane not available", slog.String("kind", before.Limits.Kind), slog.Any("error", before.failed))
		}
	}
	p.log.Info("data plane opened", slog.String("kind", o.Limits.Kind))
	return plane, nil
}

var errClosed = errors.New("the data plane is closed")

// opened returns a data plane, or nil if it isn't open.
func (p *Plane) opened(i int) dataplane.DataPlane {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.options[i].plane
}

// all are the open ones, by their index.
func (p *Plane) all() map[int]dataplane.DataPlane {
	p.mu.Lock()
	defer p.mu.Unlock()
	planes := map[int]dataplane.DataPlane{}
	for i, o := range p.options {
		if o.plane != nil {
			planes[i] = o.plane
		}
	}
	return planes
}

// passStale adds the VIPs of one data plane to the queue of all.
func (p *Plane) passStale(from <-chan lb.VIP) {
	for {
		select {
		case vip := <-from:
			p.stale.Add(vip)
		case <-p.done:
			return
		}
	}
}

// choice returns the index of the first data plane that can serve svc, and why those before it
// can't; an error if none can.
func (p *Plane) choice(svc *lb.Service) (at int, reason string, err error) {
	var reasons []string
	for i := range p.options {
		o := &p.options[i]
		if o.failed != nil {
			reasons = append(reasons, o.failed.Error())
			continue
		}
		refused := o.Limits.Check(svc)
		if len(refused) == 0 {
			return i, strings.Join(reasons, "; "), nil
		}
		for _, r := range refused {
			reasons = append(reasons, r.Error())
		}
	}
	return 0, "", errors.New(strings.Join(reasons, "; "))
}

// Update programs the service on the data plane of its choice, and then deletes it from the
// others.
func (p *Plane) Update(ctx context.Context, svc *lb.Service) (dataplane.Programmed, error) {
	release, err := p.claim(ctx, svc.VIP)
	if err != nil {
		return dataplane.Programmed{}, err
	}
	defer release()
	at, reason, err := p.choice(svc)
	if err != nil {
		return dataplane.Programmed{}, fmt.Errorf("vip %s: %w", svc.VIP, err)
	}
	plane, err := p.open(at)
	if err != nil {
		return dataplane.Programmed{}, fmt.Errorf("vip %s: %w (%s)", svc.VIP, err, reason)
	}
	was, known := p.move(svc.VIP, at)
	programmed, err := plane.Update(ctx, svc)
	if err != nil {
		return dataplane.Programmed{}, err
	}
	if was != at || !known {
		if err := p.leave(ctx, svc.VIP, at); err != nil {
			return dataplane.Programmed{}, err
		}
	}
	programmed.DataPlane, programmed.Reason = p.options[at].Limits.Kind, reason
	return programmed, nil
}

// move returns where a service is; unless it is there alone, its place is not known from now
// on, until leave. Known says that this process has programmed it.
func (p *Plane) move(vip lb.VIP, to int) (was int, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, known = p.placed[vip]; known && was != to {
		p.placed[vip] = moving
	}
	return was, known
}

// leave deletes a service from all data planes but one.
func (p *Plane) leave(ctx context.Context, vip lb.VIP, stays int) error {
	for i, plane := range p.all() {
		if i == stays {
			continue
		}
		if err := plane.Delete(ctx, vip); err != nil {
			return fmt.Errorf("data plane %s: %w", p.options[i].Limits.Kind, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placed[vip] = stays
	return nil
}

// claim waits until no other call changes the service of a VIP.
func (p *Plane) claim(ctx context.Context, vip lb.VIP) (release func(), err error) {
	for {
		p.mu.Lock()
		other := p.changing[vip]
		if other == nil {
			done := make(chan struct{})
			p.changing[vip] = done
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.changing, vip)
				close(done)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Delete deletes the service from all data planes.
func (p *Plane) Delete(ctx context.Context, vip lb.VIP) error {
	release, err := p.claim(ctx, vip)
	if err != nil {
		return err
	}
	defer release()
	for i, plane := range p.all() {
		if err := plane.Delete(ctx, vip); err != nil {
			return fmt.Errorf("data plane %s: %w", p.options[i].Limits.Kind, err)
		}
	}
	p.forget(func(known lb.VIP) bool { return known == vip })
	return nil
}

// forget forgets services that have been deleted.
func (p *Plane) forget(deleted func(lb.VIP) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for vip := range p.placed {
		if deleted(vip) {
			delete(p.placed, vip)
		}
	}
}

// Prune prunes every data plane that is open or may have services of an earlier process. Each
// keeps the services that it has, and those that no data plane could be given yet.
func (p *Plane) Prune(ctx context.Context, keep []lb.VIP) error {
	var errs []error
	for i, o := range p.options {
		if o.failed != nil || p.opened(i) == nil && !o.Used() {
			continue
		}
		plane, err := p.open(i)
		if err == nil {
			err = plane.Prune(ctx, p.keptBy(i, keep))
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	kept := make(map[lb.VIP]bool, len(keep))
	for _, vip := range keep {
		kept[vip] = true
	}
	p.forget(func(vip lb.VIP) bool { return !kept[vip] })
	return nil
}

func (p *Plane) keptBy(i int, keep []lb.VIP) (vips []lb.VIP) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, vip := range keep {
		if at, placed := p.placed[vip]; !placed || at == moving || at == i {
			vips = append(vips, vip)
		}
	}
	return vips
}

// Stale delivers the stale VIPs of all data planes.
func (p *Plane) Stale() <-chan lb.VIP { return p.stale.Out() }

// Close closes all that are open.
func (p *Plane) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return nil
	}
	close(p.done)
	p.running.Wait()
	p.stale.Close()
	var errs []error
	for _, plane := range p.all() {
		errs = append(errs, plane.Close())
	}
	return errors.Join(errs...)
}
