// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
	"fairlead.io/fairlead/internal/bgp/speaker"
)

// client is a client. The reflector's lock guards its fields.
type client struct {
	*adjRIBIn
	bgp.Peer
	// session is the latest one, status the peer's state besides it.
	session *session.Session
	status  bgp.PeerState
	// endOfRIB is when the session's last End-of-RIB came; zero before.
	endOfRIB time.Time
	// expiry is when stale routes are removed. They are of the session before, and End-of-RIB of this one removes them, too.
	expiry *time.Timer
	// kept counts the timers, to distinguish one that was stopped too late.
	kept int
}

// logAttrs identify the client in the log.
func (p *client) logAttrs(more ...any) []any {
	return append([]any{"client", p.Address, "routerID", p.RouterID}, more...)
}

// established reports whether the client has a session.
func (p *client) established() bool { return p.session.Status().State == bgp.Established && !p.ended() }

// ended reports whether the client's session has ended.
func (p *client) ended() bool {
	select {
	case <-p.session.Ended():
		return true
	default:
		return false
	}
}

// offer begins a session of the client with that address and router ID, in place of the one that it may have. It is added
// if it is new. The caller holds the lock.
func (r *Reflector) offer(address netip.Addr, conn *session.Pending) error {
	id := identity{address, conn.Open.RouterID}
	p := r.clients[id]
	if p == nil {
		from := r.config.Range(address)
		if from == nil {
			return errNoRange
		}
		n := 0
		for other := range r.clients {
			if from.Prefix.Contains(other.Address) {
				n++
			}
		}
		if n >= from.MaxClients {
			return fmt.Errorf("range %s has %d clients already", from.Prefix, n)
		}
		p = &client{adjRIBIn: r.table.add(id, from.ASN), Peer: from.Client(address)}
		p.status = bgp.PeerState{Address: address, ASN: p.ASN, Dynamic: true, RouterID: id.RouterID, State: bgp.Idle}
		r.clients[id] = p
	} else if !p.ended() {
		p.session.Drop(session.Replaced)
		p.lost()
	}
	p.endOfRIB = time.Time{}
	s := session.Begin(conn, session.Options{
		Local: r.config.Local, Peer: p.Peer,
		OnOpen: func(s *session.Session) { r.opened(p, s) }, OnUpdate: func(s *session.Session, u *session.Update) session.Notification {
			return r.update(p, s, u)
		},
	})
	p.session = s
	r.work.Go(func() { r.follow(p, s) })
	return nil
}

// contested returns the session of a client that has one, which a new connection may replace.
func (r *Reflector) contested(address netip.Addr, conn *session.Pending) *session.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.clients[identity{address, conn.Open.RouterID}]; p != nil && p.established() {
		return p.session
	}
	return nil
}

// configured reports whether a configuration has the client unchanged.
func (p *client) configured(config *bgp.Reflection) bool {
	from := config.Range(p.Address)
	if from == nil || config.Router(p.Address) != nil {
		return false
	}
	client := from.Client(p.Address)
	return client.Equal(&p.Peer)
}

// update records the routes of a client's session. A notification that isn't zero ends it.
func (r *Reflector) update(p *client, s *session.Session, u *session.Update) session.Notification {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.session != s {
		return session.Notification{} // which has ended
	}
	if u.EndOfRIB != (session.Families{}) {
		p.endOfRIB = time.Now()
	}
	return r.table.update(p.adjRIBIn, u)
}

// follow follows a client's session until it ends.
func (r *Reflector) follow(p *client, s *session.Session) {
	select {
	case <-s.Established():
		r.mu.Lock()
		if p.session == s {
			r.log.Info("session established", p.logAttrs()...)
			r.watch()
			r.file.save(r.clients)
		}
		r.mu.Unlock()
	case <-s.Ended():
	}
	<-s.Ended()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clients[p.identity] != p || p.session != s {
		return // removed, or it has another session
	}
	status := s.Status()
	p.status.Reason = status.Reason
	was := p.lost()
	switch {
	case p.RestartTime > 0 && status.Lost && was && status.Open.GracefulRestart && status.Open.RestartTime > 0:
		r.keep(p, status.Open.RestartTime)
		r.log.Warn("client lost, routes kept for its restart time", p.logAttrs()...)
	case was || r.logLimit.Allow():
		r.log.Warn("session ended", p.logAttrs("reason", p.status.Reason)...)
		fallthrough
	default:
		if was || p.expiry == nil { // otherwise an attempt of a client has failed whose routes are kept
			r.remove(p)
		}
	}
	r.watch()
}

// lost notes that a client's session has ended, or is ended for another one, and makes its routes stale. It reports whether
// it was established.
func (p *client) lost() bool {
	for prefix, route := range p.routes {
		route.stale = true
		p.routes[prefix] = route
	}
	return p.session.Conclude(&p.status)
}

// opened is called when a client's OPEN has been accepted: routes of the session before that the client didn't preserve
// are removed (RFC 4724 §4.2).
func (r *Reflector) opened(p *client, s *session.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.session != s {
		return
	}
	p.forget()
	open := s.Status().Open
	r.table.sweep(p.adjRIBIn, func(prefix netip.Prefix) bool { return !open.GracefulRestart || !open.Preserved.Has(prefix.Addr()) })
	if len(p.routes) > 0 { // which End-of-RIB should do before
		r.keep(p, max(p.RestartTime, time.Second))
	}
}

// keep keeps a client's stale routes for a time.
func (r *Reflector) keep(p *client, duration time.Duration) {
	p.forget()
	now := p.kept
	p.expiry = time.AfterFunc(duration, func() { r.expire(p, now) })
}

// forget stops the timer of a client's stale routes.
func (p *client) forget() {
	p.kept++
	if p.expiry != nil {
		p.expiry.Stop()
		p.expiry = nil
	}
}

// expire removes the stale routes of a client that is late, and the client if it hasn't come back.
func (r *Reflector) expire(p *client, kept int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.kept != kept {
		return // the timer was stopped too late
	}
	p.forget()
	r.table.sweep(p.adjRIBIn, func(netip.Prefix) bool { return true })
	if p.ended() {
		r.remove(p)
	}
}

// drop ends a client's session from here. The caller holds the lock.
func (r *Reflector) drop(p *client, reason string) {
	r.log.Warn("session dropped", p.logAttrs("reason", reason)...)
	p.status.Reason = reason
	r.remove(p)
}

// remove removes a client and its routes, and ends its session. The caller holds the lock.
func (r *Reflector) remove(p *client) {
	p.session.Drop("no longer a client")
	p.forget()
	delete(r.clients, p.identity)
	r.table.remove(p.adjRIBIn)
	r.file.save(r.clients)
}

// addRouter dials a router, or waits for its connections. The caller holds the lock.
func (r *Reflector) addRouter(peer bgp.Peer) {
	local := r.config.Local
	r.routers[peer.Address] = speaker.Keep(speaker.KeeperOptions{
		Local: local, Peer: peer, Log: r.log.With("router", peer.Address),
		Dial: session.Dial, Ready: r.ready, Waiting: "waiting for the clients",
		Begin: func(conn *session.Pending, restarted bool) *session.Session {
			return session.Begin(conn, session.Options{Local: local, Peer: peer, Restarted: restarted, Paths: true, OnOpen: r.addOut})
		},
		OnEstablished: func() { r.bfd.Established(peer.Address) },
	})
}

// addOut gives the session of a router all routes, and later changes until it ends.
func (r *Reflector) addOut(s *session.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.addSession(s)
	r.work.Go(func() {
		<-s.Ended()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.table.sessions, s)
	})
}
