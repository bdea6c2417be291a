// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"net"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/gobgp"
	"fairlead.io/fairlead/internal/bgp/tcp"
)

// addRouter has a router called, or waits for its calls. The caller holds the
// lock.
func (r *Reflector) addRouter(router bgp.Peer) {
	p := &peer{Peer: router, router: true, key: router.Address, state: bgp.Idle, gone: make(chan struct{}), retry: make(chan struct{}, 1)}
	p.survey()
	r.peers[router.Address] = p
	r.work.Go(func() { r.keep(p) })
}

// keep begins sessions with a router, one after the other.
func (r *Reflector) keep(p *peer) {
	if !r.pause(p, r.begun) {
		return
	}
	var pause tcp.Backoff
	for {
		began := time.Now()
		conn, ok := r.call(p)
		if ok {
			ok = r.begin(p, conn)
		}
		if ok && !r.pause(p, p.retry) {
			return
		}
		if !r.sleep(p, pause.Next(time.Since(began))) {
			return
		}
	}
}

// begin adds the router to the library and gives it the connection, if there is
// one: a passive router's comes later.
func (r *Reflector) begin(p *peer, conn *net.TCPConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.ctx.Err()
	if err == nil && r.peers[p.Address] == p {
		err = r.library.AddRouter(r.ctx, &r.config, p.Peer)
	}
	if err != nil {
		if conn != nil {
			_ = conn.Close()
		}
		p.reason = err.Error()
		return false
	}
	if conn != nil {
		r.hand(p, &gobgp.Caller{TCPConn: conn})
	}
	return true
}

// call connects to a router, if it is to be called. It says in the peer's state
// why that fails.
func (r *Reflector) call(p *peer) (conn *net.TCPConn, ok bool) {
	if p.Passive {
		return nil, true
	}
	r.mu.Lock()
	p.state, p.again = bgp.Connect, time.Time{}
	local := r.config.Local
	r.mu.Unlock()
	conn, err := tcp.Dial(r.ctx, local, &p.Peer)
	if err == nil {
		return conn, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.state = bgp.Idle
	if reason := err.Error(); reason != p.reason {
		p.reason = reason
		r.log.Warn("router not reached", "address", p.Address, "error", err)
	}
	return nil, false
}

// rest has a router called again whose session ended. The caller holds the lock.
func (r *Reflector) rest(p *peer, caller *gobgp.Caller) {
	if caller != nil {
		_ = caller.Close()
	}
	select {
	case p.retry <- struct{}{}:
	default:
	}
}

// pause waits for a signal; false if the router or the reflector is gone first.
func (r *Reflector) pause(p *peer, signal <-chan struct{}) bool {
	select {
	case <-signal:
		return r.ctx.Err() == nil
	case <-p.gone:
	case <-r.ctx.Done():
	}
	return false
}

// sleep waits until the router is called again; false if the router or the
// reflector is gone first.
func (r *Reflector) sleep(p *peer, wait time.Duration) bool {
	r.mu.Lock()
	p.again = time.Now().Add(wait)
	r.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.gone:
	case <-r.ctx.Done():
	}
	return false
}

// departure is how long routers may take to notice that the reflector is gone.
const departure = time.Second

// hangUp ends all that the reflector does of its own, and leaves routers without a
// word, so that they keep what they were told (RFC 4724 §4.2). It comes before all
// else that ends: a router that hears of clients, or of BFD, before it has lost the
// session would take the routes away. Every connection ends like that: the library
// may have told a router all before it says that the session is established.
func (r *Reflector) hangUp() {
	r.mu.Lock()
	r.cancel()
	var noticed []<-chan struct{}
	for _, p := range r.peers {
		if p.router && p.link != nil {
			noticed = append(noticed, p.link.Depart())
		}
	}
	r.mu.Unlock()
	late := time.After(departure)
	for _, ended := range noticed {
		select {
		case <-ended:
		case <-late:
			return
		}
	}
}
