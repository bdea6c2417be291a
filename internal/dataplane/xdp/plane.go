// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/stale"
	"fairlead.io/fairlead/internal/dataplane/xdp/handover"
	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
	"fairlead.io/fairlead/internal/dataplane/xdp/probe"
	"fairlead.io/fairlead/internal/lb"
)

var errClosed = errors.New("data plane is closed")

// Config says where the data plane runs.
type Config struct {
	// PinDir is this instance's directory in a BPF file system, for example
	// /sys/fs/bpf/fairlead/lb1.
	PinDir string
	// Interfaces are those on which clients' packets arrive and through which
	// backends are reached.
	Interfaces []string
	// TunnelEnds are the addresses of this node at which VXLAN and Geneve frames
	// hold packets for VIPs.
	TunnelEnds []netip.Addr
	Mode       Mode
	NAT        NAT
	// Capacity of the tables; what is 0 is DefaultCapacity's.
	Capacity Capacity
	// Seed of the flow hash and of the rings: the same on all nodes of a cluster.
	Seed uint64
	Log  *slog.Logger
	// Replaced is told why another program has taken the place of the one in use;
	// nil if nobody wants to know. It must not call the plane.
	Replaced func(reason string)

	// For tests: the tables' layout, if it is not the present one, and whether
	// programs do without the self-test, which takes longer than they do.
	layout   string
	untested bool
}

// folder is where the tables are pinned.
func (c *Config) folder() string { return filepath.Join(c.PinDir, cmp.Or(c.layout, layout)) }

// Plane is the XDP data plane of one node. It implements dataplane.DataPlane.
type Plane struct {
	config   Config
	kernel   *kernel
	resolver resolver
	grace    *grace
	endGrace func()
	seed     uint64
	// epoch is the zero of the tracking's clock.
	epoch   time.Time
	stale   *stale.Queue
	refused chan dataplane.Refusal
	// notes are those of refused connections.
	notes   *ringbuf.Reader
	done    chan struct{}
	running sync.WaitGroup

	// mu guards what follows and every write to the tables. It is never held
	// while waiting for a grace period, the resolver or a caller.
	mu          sync.Mutex
	closed      bool
	attachments []Attachment
	// inherits says that an earlier agent's programs run on these tables, and
	// inherited what they contain, until they are replaced.
	inherits  bool
	inherited features
	services  map[lb.VIP]*service
	needs     featureCounts
	addresses addressBook
	met       map[balancerMemberKey]int // services of each member
	numbers   *arena                    // service numbers
	rings     *arena                    // chunks of the ring table
	backends  *arena                    // entries of the backend table
	traffic   *arena                    // indexes of the backends' traffic counters
	sources   *sourceLists
	// deleted is when a VIP last left the table.
	deleted ticket
	// generation is that of the backend that was last given a slot.
	generation uint16
	tracer     *tracer // nil before the first trace
	paths      paths
	// handover is NAT's part for backends that XDP can't send to.
	handover *handover.Handover

	// sessionsLeft says that there may be NAT sessions without a service; only
	// the sweep knows it.
	sessionsLeft bool
	// clientsLeft says that there may be records of clients.
	clientsLeft bool
}

// Open loads the program and adopts what an earlier agent pinned, in the current
// network namespace. Services that an earlier agent programmed are balanced on,
// unchanged, until Update or Prune. Attach puts the program to work.
func Open(cfg Config) (*Plane, error) {
	hops, err := nexthop.New(cfg.Log, cfg.Interfaces)
	if err != nil {
		return nil, fmt.Errorf("next hops: %w", err)
	}
	p, err := newPlane(cfg, hops)
	if err != nil {
		return nil, errors.Join(err, hops.Close())
	}
	if err := errors.Join(p.inherit(), probe.Remove()); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.running.Go(func() { p.sweepEvery(sweepInterval) })
	return p, nil
}

// newPlane is a plane that is attached nowhere.
func newPlane(cfg Config, hops resolver) (*Plane, error) {
	pins := ""
	if cfg.PinDir != "" {
		if err := mountBPF(cfg.PinDir); err != nil {
			return nil, err
		}
		pins = cfg.folder()
	}
	synchronize, endGrace, err := synchronizer()
	if err != nil {
		return nil, err
	}
	capacity := cfg.Capacity.orDefault()
	kernel, err := openKernel(pins, capacity, cfg.Seed, cfg.NAT.orDefault())
	if err != nil {
		endGrace()
		return nil, err
	}
	g := newGrace(synchronize)
	p := &Plane{
		config:       cfg,
		kernel:       kernel,
		resolver:     hops,
		grace:        g,
		endGrace:     endGrace,
		seed:         cfg.Seed,
		epoch:        time.Now(),
		stale:        stale.New(),
		refused:      make(chan dataplane.Refusal, maxRefusals),
		done:         make(chan struct{}),
		sessionsLeft: true,
		services:     make(map[lb.VIP]*service),
		addresses:    make(addressBook),
		met:          make(map[balancerMemberKey]int),
		numbers:      newArena("services", uint32(capacity.Services)+1, g),
		rings:        newArena("rings", chunks(uint32(capacity.RingEntries)), g),
		backends:     newArena("backends", uint32(capacity.Backends), g),
		traffic:      newArena("backend_stats", uint32(capacity.Backends), g),
		sources:      newSourceLists(kernel.maps.Sources, capacity, g),
		handover: handover.New(handover.Config{
			Owner: cfg.PinDir, Interfaces: cfg.Interfaces, Tables: kernel.shared, Seed: cfg.Seed,
		}),
	}
	if err := p.begin(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// begin adopts what is in the tables, writes what only the node's configuration
// says, and starts what runs until the plane is closed.
func (p *Plane) begin() error {
	if err := p.numbers.reserve(extent{vipNever, 1}); err != nil {
		return err
	}
	err := errors.Join(p.adopt(), p.kernel.setTunnelEnds(p.config.TunnelEnds), p.kernel.setNATAddresses())
	if err != nil {
		return err
	}
	if p.notes, err = ringbuf.NewReader(p.kernel.maps.NatRefusals); err != nil {
		return fmt.Errorf("table nat_refusals: %w", err)
	}
	p.running.Go(func() { p.readRefusals(p.notes) })
	p.running.Go(p.relay)
	return nil
}

// clock is the time that tracking counts in.
func (p *Plane) clock() time.Duration { return time.Since(p.epoch) }

// relay passes on the services of which a next hop has changed.
func (p *Plane) relay() {
	for {
		select {
		case <-p.done:
			return
		case vip := <-p.resolver.Changed():
			p.stale.Add(vip)
		}
	}
}

// Attach puts the program on the configured interfaces of the current network
// namespace and takes it off those that no longer are. It is called once, when
// services have been programmed, so that none of their packets is mistaken for
// somebody else's.
func (p *Plane) Attach() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if err := p.specialise(); err != nil {
		return err
	}
	cfg := p.config
	for _, name := range cfg.Interfaces {
		if slices.ContainsFunc(p.attachments, func(a Attachment) bool { return a.Interface == name }) {
			continue
		}
		if err := p.attach(name); err != nil {
			return err
		}
	}
	if err := detachOthers(cfg.PinDir, cfg.Interfaces); err != nil {
		return err
	}
	return removeOtherLayouts(cfg.PinDir, filepath.Base(cfg.folder()))
}

// attach puts the program on one interface.
func (p *Plane) attach(name string) error {
	a, err := attach(p.kernel.program, p.config.PinDir, name, p.config.Mode)
	if err != nil {
		return err
	}
	p.attachments = append(p.attachments, a)
	p.config.Log.Info("program attached", "interface", a.Interface, "mode", a.Mode, "reason", a.Reason, "adopted", a.Adopted)
	return nil
}

// Attachments lists the interfaces on which the program runs.
func (p *Plane) Attachments() []Attachment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.attachments)
}

// Stale delivers services of which a next hop has changed, or for which flows
// have been learned.
func (p *Plane) Stale() <-chan lb.VIP { return p.stale.Out() }

// Close ends this process's part; the kernel goes on balancing.
func (p *Plane) Close() error {
	p.mu.Lock()
	done := p.closed
	p.closed = true
	p.mu.Unlock()
	if done {
		return nil
	}
	errs := []error{p.paths.close(), p.resolver.Close()}
	close(p.done)
	if p.notes != nil {
		errs = append(errs, p.notes.Close())
	}
	p.grace.close()
	p.running.Wait()
	p.stale.Close()
	p.endGrace()
	for _, a := range p.attachments {
		errs = append(errs, a.link.Close())
	}
	errs = append(errs, p.tracer.close(), p.handover.Close(), p.kernel.Close())
	return errors.Join(errs...)
}

// ready says whether a call may go on.
func (p *Plane) ready(ctx context.Context) error {
	if p.closed {
		return errClosed
	}
	return ctx.Err()
}
