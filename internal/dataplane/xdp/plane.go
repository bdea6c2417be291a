// SPDX-License-Identifier: Apache-2.0

// Package xdp is the data plane that balances packets in the kernel, before the
// network stack receives them.
//
// It loads bpf/balancer.bpf.c, attaches it to the node's interfaces and keeps
// the tables that the program reads: for each service a Maglev ring and its
// backends, ready to be written into packets. Reconcile drives it through the
// dataplane.DataPlane interface. Everything that the kernel needs is pinned
// under one directory, so packets are balanced also while no agent runs, and the
// next agent adopts its tables and attachments.
//
// Only this folder and its subfolders import an eBPF library.
package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/healthpath"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/host/bpffs"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
	"fairlead.io/fairlead/internal/nexthop"
)

// Limits are the services that this data plane can serve.
func Limits() dataplane.Limits {
	l := dataplane.Unlimited(maxServiceBackends)
	l.Kind, l.Schedulers, l.MaxConnections = "xdp", nil, false
	l.Properties = slices.DeleteFunc(l.Properties, func(p string) bool { return p == "firewallMark" })
	return l
}

// maxServiceBackends is bounded by the 15 bits of a ring entry.
const maxServiceBackends = maglev.MaxBackends

// Types of Config and Attachments that the packages below declare.
type (
	// Capacity is how much the tables hold.
	Capacity = table.Capacity
	// NAT is where translated flows come from.
	NAT = program.NAT
	// Mode is where in the kernel the program runs.
	Mode = program.Mode
	// Attachment is the program on one interface.
	Attachment = program.Attachment
)

// Config is where and how the data plane runs.
type Config struct {
	// PinDir is this instance's directory in a BPF file system, for example
	// /sys/fs/bpf/fairlead/lb1.
	PinDir string
	// Interfaces are those on which clients' packets arrive and through which
	// backends are reached.
	Interfaces []string
	// TunnelEnds are the addresses of this node at which VXLAN and Geneve frames
	// hold packets for VIPs, if they come from one of TunnelPeers.
	TunnelEnds  []netip.Addr
	TunnelPeers []netip.Prefix
	// FilterPods has packets for pods of this node pass its netfilter (nexthop.New).
	FilterPods bool
	Mode       Mode
	NAT        NAT
	// Capacity of the tables; a field that is 0 has DefaultCapacity's value.
	Capacity Capacity
	// Seed of the flow hash and of the rings: the same on all nodes of a cluster.
	Seed uint64
	Log  *slog.Logger
	// Replaced, if set, is called with the reason when another program has replaced
	// the one in use. It must not call the plane.
	Replaced func(reason string)
	// Unrecorded, if set, is called when a service begins to have more new flows than
	// are recorded.
	Unrecorded func(lb.VIP)

	// Synchronize, if set, waits for a grace period in the kernel's place, for tests.
	Synchronize func() error

	// For tests: the tables' layout, if it is not the present one, and a substitute
	// for the self-test, which takes longer than the tests do.
	layout string
	test   func(program.Features) error
}

// Optional interfaces that a Plane implements.
var (
	_ dataplane.DataPlane       = (*Plane)(nil)
	_ dataplane.Attacher        = (*Plane)(nil)
	_ dataplane.Discarder       = (*Plane)(nil)
	_ dataplane.Tracer          = (*Plane)(nil)
	_ dataplane.FlowLister      = (*Plane)(nil)
	_ dataplane.RefusalReporter = (*Plane)(nil)
	_ health.Paths              = (*Plane)(nil)
)

// Plane is the XDP data plane of one node. It implements dataplane.DataPlane.
type Plane struct {
	config   Config
	resolver Resolver
	// epoch is the zero of the tracking's clock.
	epoch    time.Time
	stale    *dataplane.StaleQueue
	refusals *refusals
	done     chan struct{}
	running  sync.WaitGroup

	loader *loader
	// catalog's lock guards the fields below it, too.
	*catalog
	// unread is set until packets read the tables: Attach has not been called, and no
	// earlier agent left a service.
	unread bool
	// startTime is how long services start (hasNoPast); 0 for a plane that is attached nowhere.
	startTime time.Duration
	programs  *program.Set
	addresses *addresses
	members   *memberTable
	sweeper   *sweeper
	paths     *paths
	// deleted is when a VIP last left the table.
	deleted table.Ticket
	// handover is NAT's part for backends that XDP can't send to.
	handover *program.Handover
}

// Open loads the program and adopts an earlier agent's pinned tables, in the
// current network namespace. Services that an earlier agent programmed are balanced
// on, unchanged, until Update or Prune. Attach puts the program to work.
func Open(cfg Config) (*Plane, error) {
	hops, err := nexthop.New(cfg.Log, cfg.Interfaces, cfg.FilterPods)
	if err != nil {
		return nil, fmt.Errorf("next hops: %w", err)
	}
	p, err := newPlane(cfg, hops)
	if err != nil {
		return nil, errors.Join(err, hops.Close())
	}
	if err := errors.Join(p.programs.Inherit(), healthpath.Remove()); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.unread, p.startTime = len(p.services) == 0, startTime
	p.running.Go(func() { p.maintain(sweepInterval) })
	return p, nil
}

// newPlane is a plane that is attached nowhere.
func newPlane(cfg Config, hops Resolver) (*Plane, error) {
	pins := ""
	if cfg.PinDir != "" {
		if err := bpffs.Mount(cfg.PinDir); err != nil {
			return nil, err
		}
		pins = filepath.Join(cfg.PinDir, cmp.Or(cfg.layout, table.Layout))
	}
	tables, err := table.Open(pins, cfg.Capacity.OrDefault(), cfg.Synchronize)
	if err != nil {
		return nil, err
	}
	logLarger(cfg.Capacity, tables.Capacity, cfg.Log)
	refusals, err := newRefusals(tables, cfg.Log)
	if err != nil {
		return nil, errors.Join(err, tables.Close())
	}
	programs, err := program.New(program.Config{
		Tables: tables, Seed: cfg.Seed, NAT: cfg.NAT, PinDir: cfg.PinDir, Interfaces: cfg.Interfaces, Mode: cfg.Mode,
		Log: cfg.Log, Test: cfg.selfTest(), Replaced: cfg.Replaced,
	})
	if err != nil {
		return nil, errors.Join(err, refusals.reader.Close(), tables.Close())
	}
	p := &Plane{
		config:    cfg,
		resolver:  hops,
		programs:  programs,
		epoch:     time.Now(),
		stale:     dataplane.NewStaleQueue(),
		refusals:  refusals,
		done:      make(chan struct{}),
		catalog:   &catalog{tables: tables, services: make(map[lb.VIP]*service)},
		addresses: newAddresses(tables),
		members:   newMemberTable(tables),
		handover: program.NewHandover(program.HandoverConfig{
			Owner: cfg.PinDir, Interfaces: cfg.Interfaces, Tables: tables,
		}),
	}
	p.loader = &loader{catalog: p.catalog, programs: programs, handover: p.handover}
	p.sweeper, p.paths = newSweeper(p.catalog, cfg), newPaths(p.catalog, cfg)
	p.shown = func(vip lb.VIP, v *version, base uint32) {
		p.paths.repoint(vip, v, base)
		if v.remembers() {
			p.sweeper.clientsLeft.Store(true)
		}
	}
	hops.Notify(p.stale.Add)
	if err := p.begin(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// logLarger logs which tables an earlier agent has made larger than they are configured now.
func logLarger(configured, has Capacity, log *slog.Logger) {
	for setting, size := range map[string][2]int{
		"dataplane.services": {configured.Services, has.Services}, "dataplane.backends": {configured.Backends, has.Backends},
	} {
		if size[0] != 0 && size[0] < size[1] {
			log.Info("tables stay as large as they are until they are removed", "setting", setting, "configured", size[0], "size", size[1])
		}
	}
}

// begin adopts the services in the tables, writes the node's configuration, and
// starts the goroutines that run until the plane is closed.
func (p *Plane) begin() error {
	err := errors.Join(p.adopt(), p.tables.SetTunnels(p.config.TunnelEnds, p.config.TunnelPeers), p.tables.SetNATAddresses(p.config.NAT.Addresses))
	if err != nil {
		return err
	}
	p.running.Go(func() { p.refusals.run(p.nameRefusals) })
	return nil
}

// maintain sweeps, trims and rechecks until the plane is closed.
func (p *Plane) maintain(interval time.Duration) {
	w := p.sweeper
	tick := time.NewTicker(interval)
	defer tick.Stop()
	sessions, clients := time.NewTicker(sessionSweepInterval), time.NewTicker(clientSweepInterval)
	defer sessions.Stop()
	defer clients.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-sessions.C:
			_, err := w.sweepSessions()
			w.warn("sessions", err)
		case <-clients.C:
			w.warn("clients", w.sweepClients())
		case <-tick.C:
			p.recheck(p.addresses, p.stale.Add)
			w.warn("flow records", w.sweep(p.clock()))
			w.warn("counters", w.retireTraffic())
			w.warn("program features", p.loader.trim(p.resolver))
		}
	}
}

// clock is the time that tracking counts in.
func (p *Plane) clock() time.Duration { return time.Since(p.epoch) }

// Stale delivers services of which a next hop has changed, or for which flows
// have been learned.
func (p *Plane) Stale() <-chan lb.VIP { return p.stale.Out() }

// Close ends this process's part; the kernel continues to balance.
func (p *Plane) Close() error {
	p.mu.Lock()
	done := p.closed
	p.closed = true
	p.mu.Unlock()
	if done {
		return nil
	}
	errs := []error{p.paths.close(), p.resolver.Close(), p.refusals.reader.Close()}
	close(p.done)
	p.tables.Grace.Close()
	p.running.Wait()
	p.loader.mu.Lock()
	defer p.loader.mu.Unlock()
	p.stale.Close()
	errs = append(errs, p.loader.discard(), p.programs.Close(), p.handover.Close(), p.tables.Close())
	return errors.Join(errs...)
}

// Remove detaches and unpins everything that agents left in a pin directory;
// packets are no longer balanced. Nothing else in the directory is touched, and
// one that is in no BPF file system is refused. No agent may be running.
func Remove(dir string) error {
	if in, err := bpffs.In(dir); err != nil {
		return fmt.Errorf("pin directory: %w", err)
	} else if !in {
		return fmt.Errorf("pin directory %s is not in a BPF file system", dir)
	}
	if err := errors.Join(program.DetachOthers(dir, nil), program.RemoveHandover(dir)); err != nil {
		return err
	}
	if err := table.RemoveOtherLayouts(dir, ""); err != nil {
		return fmt.Errorf("pin directory: %w", err)
	}
	if err := healthpath.Remove(); err != nil {
		return err
	}
	// Not removed if it holds something else, or was never made.
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("pin directory: %w", err)
	}
	return nil
}
