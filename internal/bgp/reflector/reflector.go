// SPDX-License-Identifier: Apache-2.0

// Package reflector is a BGP route reflector for balancers (RFC 4456): clients
// call from ranges of addresses, and what they announce is passed on to routers,
// each client's path for itself (RFC 7911).
//
// It stands between speakers and routers in the story of DESIGN.md §1, where
// routers can't tell balancers apart, as many share an address behind NAT, or
// shall know only one neighbour. It moves no packets: next hops are the clients'.
//
// A client is in table from its connection until its session ends: then its
// routes go at once, unless it said that it may restart and only its connection
// was lost (RFC 4724). A client that BFD or the hold timer found dead loses them.
// A reflector that ends leaves routers their routes, and tells them nothing new
// before the clients that it had are back.
package reflector

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
	"fairlead.io/fairlead/internal/bgp/gobgp"
	"fairlead.io/fairlead/internal/bgp/tcp"
)

// Options are what a reflector needs beside its configuration.
type Options struct {
	// Book is a file that remembers clients over a restart of the reflector; empty
	// for none.
	Book string
	Log  *slog.Logger
}

// Reflector passes routes on. Its methods may be called from several goroutines.
type Reflector struct {
	log     *slog.Logger
	library *gobgp.Server
	watcher *bfd.Manager
	book    *book
	ctx     context.Context // of all that runs until Close
	cancel  context.CancelFunc
	work    sync.WaitGroup
	quota   quota

	mu        sync.Mutex
	config    bgp.Reflection
	listeners []*tcp.Listener
	// unkeyed is why listeners lack the passwords as they are now; nil: they don't.
	unkeyed error
	// peers are by what the library knows them by; met counts the clients that there
	// have ever been.
	peers map[netip.Addr]*peer
	met   uint64
	// greeted counts callers who haven't said who they are.
	greeted int
	// begun is closed when routers may be told what there is.
	begun   chan struct{}
	refused uint64
}

// Start opens the reflector for clients, and calls routers as soon as clients of
// its earlier life are back. Close ends it.
func Start(ctx context.Context, config bgp.Reflection, o Options) (*Reflector, error) {
	library, err := gobgp.Start(ctx, config.Local, o.Log)
	if err != nil {
		return nil, err
	}
	r := &Reflector{
		log: o.Log, library: library, config: config, peers: make(map[netip.Addr]*peer), begun: make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.watcher = bfd.New(o.Log, r.watched)
	if err := r.open(o.Book); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Reflector) open(path string) (err error) {
	if err := r.library.Reflect(r.ctx, &r.config); err != nil {
		return err
	}
	if err := r.library.Watch(r.ctx, r.changed, r.told); err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	if r.book, err = openBook(path); err != nil {
		return err
	}
	if err := r.listen(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, router := range r.config.Routers {
		r.addRouter(router)
	}
	r.work.Go(r.awaitClients)
	return nil
}

// Configure makes another configuration the one that holds, of which the speaker
// itself, the cluster and the addresses to listen at are as before. Sessions with
// those for whom nothing changes go on. An error means that none has ended.
func (r *Reflector) Configure(next bgp.Reflection) error {
	keys, err := keysOf(&next)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.library.Reflect(r.ctx, &next); err != nil {
		return err
	}
	r.config = next
	r.rekey(keys, nil)
	for key, p := range r.peers {
		switch {
		case !r.wants(p):
			r.drop(p, "no longer configured")
		case !p.router && p.state == bgp.Established:
			if err := r.library.Reconsider(r.ctx, key); err != nil {
				r.log.Warn("routes of a client not looked at again", append(p.described(), "error", err)...)
			}
		}
	}
	for _, router := range next.Routers {
		if r.peers[router.Address] == nil {
			r.addRouter(router)
		}
	}
	r.watch()
	return nil
}

// Close ends all sessions so that routers keep what they were told for the
// restart time: a reflector that is replaced takes no route off them.
func (r *Reflector) Close() {
	r.hangUp()
	for _, l := range r.listeners {
		l.Close()
	}
	r.watcher.Close()
	if err := r.library.Leave(context.WithoutCancel(r.ctx)); err != nil {
		r.log.Warn("reflector not left", "error", err)
	}
	r.mu.Lock()
	for _, p := range r.peers {
		p.discard()
	}
	r.mu.Unlock()
	r.work.Wait()
}

// awaitClients opens the way to routers when all clients of the earlier life have
// told their routes, or have had time enough: a router drops what it isn't told
// again.
func (r *Reflector) awaitClients() {
	defer close(r.begun)
	expected := r.book.earlier()
	if len(expected) == 0 {
		return
	}
	deadline := time.NewTimer(r.config.RestartWait)
	defer deadline.Stop()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		missing := r.missing(expected)
		if len(missing) == 0 {
			r.log.Info("clients are back", "clients", len(expected))
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			r.log.Warn("clients didn't come back in time", "clients", len(expected), "missing", missing)
			return
		case <-r.ctx.Done():
			return
		}
	}
}

// Waiting for clients of the earlier life.
const (
	checkInterval = 20 * time.Millisecond
	// settled is how long after an End-of-RIB that of the other family has come,
	// mute how long a client may take that sends none.
	settled = 100 * time.Millisecond
	mute    = time.Second
)

// missing are those who haven't told all of their routes yet.
func (r *Reflector) missing(expected []identity) (missing []identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, client := range expected {
		p := r.client(client.Address, client.RouterID)
		back := p != nil && p.state == bgp.Established &&
			(time.Since(p.since) > mute || !p.told.IsZero() && time.Since(p.told) > settled)
		if !back {
			missing = append(missing, client)
		}
	}
	return missing
}

// told takes note that a peer has told all of its routes of a family.
func (r *Reflector) told(key netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[key]; p != nil {
		p.told, p.kept = time.Now(), nil
	}
}
