// SPDX-License-Identifier: Apache-2.0

// Package reflector is a BGP route reflector for balancers (RFC 4456), which fairlead
// reflector runs. Clients connect from configured ranges of addresses, and routers
// get each client's path to a prefix (RFC 7911). It is for routers that can't peer
// with each balancer, such as pods behind NAT, or should have few neighbours. It
// forwards no packets: next hops are the clients'.
//
// A client's routes are removed when its session ends, unless only the connection was
// lost and the client may be restarting (RFC 4724). A client that BFD or the hold timer
// found down loses them. A reflector that ends leaves its routes with the routers, and
// after the next start connects to them only when its clients are back.
package reflector

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
	"fairlead.io/fairlead/internal/bgp/session"
	"fairlead.io/fairlead/internal/bgp/speaker"
)

// Options have a Reflector's state file and log.
type Options struct {
	// ClientFile saves the clients for the next start; empty for none.
	ClientFile string
	Log        *slog.Logger
}

// Reflector reflects routes. Its methods may be called concurrently.
type Reflector struct {
	log      *slog.Logger
	listener *session.Listener
	bfd      *bfd.Manager
	ctx      context.Context // of work
	cancel   context.CancelFunc
	work     sync.WaitGroup
	// logLimit limits log entries that strangers can cause.
	logLimit *rate.Limiter
	// ready is closed when routers may be connected.
	ready chan struct{}
	// passwords has the configuration whose passwords the listener sets: Configure sets the
	// next one's before it uses the rest.
	passwords atomic.Pointer[bgp.Reflection]

	mu           sync.Mutex
	config       bgp.Reflection
	file         clientFile
	clients      map[identity]*client
	routers      map[netip.Addr]*speaker.Keeper // by their addresses
	table        *table                         // of the clients' routes
	unidentified unidentified
	refused      uint64 // connections that were closed
}

// Start accepts clients, and connects to routers as soon as the clients that were
// known before the restart are back. Close ends it.
func Start(ctx context.Context, config bgp.Reflection, o Options) (*Reflector, error) {
	r := &Reflector{
		log: o.Log, config: config, clients: make(map[identity]*client), routers: make(map[netip.Addr]*speaker.Keeper),
		ready:    make(chan struct{}),
		logLimit: rate.NewLimiter(rate.Every(time.Second), 10),
	}
	r.passwords.Store(&config)
	r.table = newTable(o.Log, &r.config)
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.bfd = bfd.New(o.Log, r.bfdChanged)
	r.listener = session.NewListener(o.Log, func() (session.Keys, error) { return keysOf(r.passwords.Load()) }, r.accept)
	if err := r.open(o.ClientFile); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Reflector) open(clientFile string) (err error) {
	if r.file, err = openClientFile(clientFile, r.log); err != nil {
		return err
	}
	var at []netip.AddrPort
	for _, address := range r.config.Listen {
		at = append(at, netip.AddrPortFrom(address, r.config.ListenPort()))
	}
	if err := r.listener.Set(r.ctx, at...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, router := range r.config.Routers {
		r.addRouter(router)
	}
	r.work.Go(func() { r.table.run(r.ctx, &r.mu) })
	timeout := r.config.RestartWait
	r.work.Go(func() { r.awaitClients(timeout) })
	return nil
}

// Configure replaces the configuration; Local, ClusterID and the addresses to listen
// at must not change. Sessions with unchanged peers go on. An error means that nothing
// has changed.
func (r *Reflector) Configure(next bgp.Reflection) error {
	if _, err := keysOf(&next); err != nil {
		return err
	}
	former := r.passwords.Swap(&next)
	if err := r.listener.Update(r.ctx); err != nil {
		r.passwords.Store(former)
		_ = r.listener.Update(r.ctx) // its errors repeat err, and the listener tries again
		return err
	}
	r.configure(next)
	return nil
}

func (r *Reflector) configure(next bgp.Reflection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.config = next
	for address, old := range r.routers {
		switch router := next.Router(address); {
		case router == nil:
			old.Stop(session.Deconfigured)
		case !router.Equal(&old.Peer):
			old.Stop(session.ConfigurationChanged)
		default:
			continue
		}
		delete(r.routers, address)
	}
	for _, p := range r.clients {
		switch {
		case !p.configured(&next):
			r.drop(p, "no longer configured")
		default:
			for prefix, to := range p.routes {
				r.table.decide(p.adjRIBIn, prefix, to)
			}
		}
	}
	for _, router := range next.Routers {
		if r.routers[router.Address] == nil {
			r.addRouter(router)
		}
	}
	r.watch()
}

// Close ends all sessions so that routers keep the routes for the restart time.
func (r *Reflector) Close() {
	r.closeRouters()
	r.listener.Close()
	r.bfd.Close()
	r.mu.Lock()
	for _, p := range r.clients {
		p.session.Drop("stopped")
		p.forget()
	}
	r.mu.Unlock()
	r.work.Wait()
}

// closeRouters stops the reflector's own work, and closes the connections of routers
// without a notification, so that they keep the routes (RFC 4724 §4.2). It comes before
// everything else: a router that saw clients or BFD go down before its session would
// remove the routes.
func (r *Reflector) closeRouters() {
	r.mu.Lock()
	r.cancel()
	r.file.path = "" // clients that leave now leave for this reflector's end
	routers := maps.Clone(r.routers)
	r.mu.Unlock()
	var stopping sync.WaitGroup
	for _, router := range routers {
		stopping.Go(func() { router.Stop(session.Notification{}) })
	}
	stopping.Wait()
}

// checkInterval is how often awaitClients checks the clients.
const checkInterval = 20 * time.Millisecond

// awaitClients closes ready when all clients from before the restart have announced
// their routes, or the timeout is over: a router removes those that it doesn't get
// again.
func (r *Reflector) awaitClients(timeout time.Duration) {
	defer close(r.ready)
	before := len(r.file.before)
	if before == 0 {
		return
	}
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		r.mu.Lock()
		missing := r.file.missing(r.clients)
		r.mu.Unlock()
		if len(missing) == 0 {
			r.log.Info("all clients are back", "clients", before)
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			r.log.Warn("not all clients are back", "clients", before, "missing", missing)
			return
		case <-r.ctx.Done():
			return
		}
	}
}
