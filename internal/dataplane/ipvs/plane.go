// SPDX-License-Identifier: Apache-2.0

// Package ipvs is the data plane that balances packets by the kernel's IP Virtual Server.
//
// It programs IPVS by generic netlink, and keeps two nftables tables, one for each family,
// which mark packets for firewall marks, translate the sources of forwarded packets, and
// record which IPVS services are Fairlead's. Everything stays in the kernel when the agent
// ends; the next agent reads it there (docs/design/ipvs.md). Reconcile drives the package
// through the dataplane.DataPlane interface.
package ipvs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// maxBackends is the size of the table of IPVS's scheduler mh in kernels' default
// configuration (CONFIG_IP_VS_MH_TAB_INDEX=12): with more, some would get no flows.
const maxBackends = 4093

// Limits are the services that this data plane can serve.
func Limits() dataplane.Limits {
	return dataplane.Limits{
		Kind:           "ipvs",
		Forwards:       []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.NAT},
		OtherFamily:    []lb.Forward{lb.IPIP, lb.GUE},
		MaxBackends:    maxBackends,
		Schedulers:     []lb.Scheduler{lb.SchedulerRR, lb.SchedulerWRR, lb.SchedulerLC, lb.SchedulerWLC, lb.SchedulerSH},
		Affinities:     []lb.Affinity{lb.AffinityClient},
		MaxConnections: true,
		Properties:     []string{"affinityTimeout", "firewallMark", "tracking" /* always */, "unavailable"},
	}
}

// Config is how the data plane runs. All its state is in the kernel.
type Config struct {
	Log *slog.Logger
	// Forwarding allows to have the kernel forward packets between all of the node's networks, which
	// services with nat need. Otherwise they wait until an administrator does.
	Forwarding bool
}

// errClosed is returned by calls after Close.
var errClosed = errors.New("data plane is closed")

// Plane is the IPVS data plane of one network namespace. It implements
// dataplane.DataPlane and dataplane.FlowLister.
type Plane struct {
	log    *slog.Logger
	kernel *kernel
	stale  *dataplane.StaleQueue
	done   chan struct{}
	// running are the goroutines that end with done.
	running sync.WaitGroup

	// mu guards the fields below, and every change of the kernel's state.
	mu     sync.Mutex
	closed bool
	// owned are the VIPs that the kernel's tables name as Fairlead's.
	owned map[lb.VIP]entry
	// services of owned that this process has programmed, with the errors of routes to
	// their backends then.
	services map[lb.VIP]*programmed
	// counts has the traffic of each service.
	counts map[lb.VIP]*count
	// exits counts packets by forwarding mode, including packets of deleted
	// services.
	exits map[string]uint64
}

// programmed is a service that this process has programmed.
type programmed struct {
	*lb.Service
	routes routes
}

var (
	_ dataplane.DataPlane  = (*Plane)(nil)
	_ dataplane.FlowLister = (*Plane)(nil)
)

// Open reads the services that an earlier agent left in the calling thread's network
// namespace. They stay unchanged until Update or Prune. The error of a kernel without
// IPVS or nftables names the missing module.
func Open(cfg Config) (*Plane, error) {
	k, err := openKernel(cfg.Log)
	if err != nil {
		return nil, err
	}
	k.forwarding = cfg.Forwarding
	p := &Plane{
		log: cfg.Log, kernel: k, stale: dataplane.NewStaleQueue(), done: make(chan struct{}),
		services: map[lb.VIP]*programmed{}, counts: map[lb.VIP]*count{}, exits: map[string]uint64{},
	}
	changes, err := k.watchRoutes(p.done)
	if err == nil {
		p.owned, err = k.owned()
	}
	if err != nil {
		p.stale.Close()
		close(p.done)
		return nil, errors.Join(err, k.close())
	}
	p.running.Go(func() { p.watch(changes) })
	return p, nil
}

// Stale delivers services of which a backend's route has appeared, changed or gone.
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
	close(p.done)
	p.running.Wait()
	p.stale.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kernel.close()
}

// do runs fn with the lock held, in the plane's network namespace, unless the call has to
// end.
func (p *Plane) do(ctx context.Context, fn func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return p.kernel.namespace.do(fn)
}

// Remove deletes everything that agents left in the calling thread's network namespace, and
// puts settings back. A kernel without IPVS or nftables has nothing of it. No agent may be
// running.
func Remove() error {
	p, err := Open(Config{Log: slog.New(slog.DiscardHandler)})
	if _, missing := errors.AsType[*MissingError](err); missing {
		return nil
	} else if err != nil {
		return err
	}
	if err := p.Prune(context.Background(), nil); err != nil {
		return errors.Join(fmt.Errorf("ipvs: %w", err), p.Close())
	}
	return p.Close()
}
