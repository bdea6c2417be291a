// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
	"fairlead.io/fairlead/internal/bgp/speaker"
)

// client is a client. The reflector's lock guards its fields.
type client struct {
	bgp.Peer
	// key is the instance's key of the client.
	key netip.Addr

	// status is the peer's state besides the session. Its router ID distinguishes
	// clients with one address, and is zero if the first message was no OPEN.
	status bgp.PeerState
	// endOfRIB is when the session's last End-of-RIB came; zero before.
	endOfRIB time.Time
	// active is set while the instance waits for a connection, pending is the latest
	// one that came before it did.
	active  bool
	pending *session.Pending
	// session is the latest, if any. kept is the former session whose routes are kept
	// until the End-of-RIB in the next one.
	session, kept *session.Session
}

// logAttrs identify the client in the log.
func (p *client) logAttrs(more ...any) []any {
	return append([]any{"client", p.Address, "routerID", p.status.RouterID}, more...)
}

// offer gives a connection to the client with address and router ID, which is added if
// it is new. The caller holds the lock.
func (r *Reflector) offer(address netip.Addr, conn *session.Pending) (err error) {
	p := r.client(address, conn.Open.RouterID)
	if p == nil {
		if p, err = r.addClient(address, conn.Open.RouterID); err != nil {
			return err
		}
	}
	r.connect(p, conn)
	return nil
}

// configured reports whether the configuration has the client unchanged.
func (r *Reflector) configured(p *client) bool {
	from := r.config.Range(p.Address)
	if from == nil || r.config.Router(p.Address) != nil {
		return false
	}
	client := from.Client(p.Address)
	return client.Equal(&p.Peer)
}

// client is the one with an address and router ID, or nil.
func (r *Reflector) client(address, id netip.Addr) *client {
	for _, p := range r.clients {
		if p.Address == address && p.status.RouterID == id {
			return p
		}
	}
	return nil
}

// connect begins a session, or keeps the connection until the instance is active: if
// it keeps routes of a session that was lost, that takes seconds.
func (r *Reflector) connect(p *client, conn *session.Pending) {
	if r.ctx.Err() != nil {
		_ = conn.Close()
		return
	}
	if !p.active {
		p.discard()
		p.pending = conn
		return
	}
	p.active = false
	var err error
	if p.session, err = r.instance.BeginClient(r.ctx, &r.config, p.key, &p.Peer, conn); err != nil {
		r.drop(p, err.Error())
	}
}

// discard closes the pending connection.
func (p *client) discard() {
	if p.pending != nil {
		_ = p.pending.Close()
		p.pending = nil
	}
}

func (r *Reflector) addClient(address, id netip.Addr) (*client, error) {
	from := r.config.Range(address)
	if from == nil {
		return nil, errNoRange
	}
	n := 0
	for _, p := range r.clients {
		if from.Prefix.Contains(p.Address) {
			n++
		}
	}
	if n >= from.MaxClients {
		return nil, fmt.Errorf("range %s has %d clients already", from.Prefix, n)
	}
	p := &client{Peer: from.Client(address)}
	p.status = bgp.PeerState{Address: address, ASN: p.ASN, Dynamic: true, RouterID: id, State: bgp.Idle}
	key, err := r.instance.AddClient(r.ctx, &r.config, &p.Peer)
	if err != nil {
		return nil, err
	}
	p.key = key
	r.clients[key] = p
	return p, nil
}

// changed follows a session.
func (r *Reflector) changed(c session.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.clients[c.Key]
	if p == nil {
		return // removed
	}
	former := p.status.State
	p.status.State = c.State
	switch c.State {
	case bgp.Active:
		p.active = true
		if conn := p.pending; conn != nil {
			p.pending = nil
			r.connect(p, conn)
		}
	case bgp.Established:
		p.status.Since, p.status.Reason, p.endOfRIB = time.Now(), "", time.Time{}
		r.log.Info("session established", p.logAttrs()...)
		r.watch()
		r.saveClients()
	case bgp.Idle:
		r.ended(p, c, former)
	case bgp.Connect, bgp.OpenSent, bgp.OpenConfirm: // on the way
	}
}

// ended handles the end of a session, or of a failed attempt.
func (r *Reflector) ended(p *client, c session.Change, former bgp.SessionState) {
	var last session.Status
	if p.session != nil {
		last = p.session.Status()
	}
	p.status.Reason = cmp.Or(last.Reason, "session ended")
	if former == bgp.Established {
		p.status.Since = time.Now()
		p.status.Flaps++
	}
	// The library takes an end by its own hold timer for a restart, too, but a client
	// that hangs may not forward packets.
	kept := c.Kept && !last.Refused
	switch {
	case kept:
		p.kept, p.session = p.session, nil
		r.log.Warn("client lost, routes kept for its restart time", p.logAttrs()...)
	case former == bgp.Established || r.logLimit.Allow():
		r.log.Warn("session ended", p.logAttrs("reason", p.status.Reason)...)
	}
	if !kept {
		r.remove(p)
	}
	r.watch()
}

// drop ends a client's session from here. The caller holds the lock.
func (r *Reflector) drop(p *client, reason string) {
	r.log.Warn("session dropped", p.logAttrs("reason", reason)...)
	if p.status.State == bgp.Established {
		p.status.Since = time.Now()
		p.status.Flaps++
	}
	p.status.Reason = reason
	r.remove(p)
}

// remove removes a client and its routes, unless it has connected again already.
func (r *Reflector) remove(p *client) {
	if err := r.instance.Remove(r.ctx, p.key); err != nil {
		r.log.Debug("peer not removed", p.logAttrs("error", err)...)
	}
	conn := p.pending
	delete(r.clients, p.key)
	r.saveClients()
	if conn == nil {
		return
	}
	if err := r.offer(p.Address, conn); err != nil {
		_ = conn.Close()
	}
}

// saveClients saves the current clients for the next start.
func (r *Reflector) saveClients() {
	if r.ctx.Err() != nil {
		return // clients that leave now leave for this reflector's end
	}
	var clients []identity
	for _, p := range r.clients {
		if !p.status.Since.IsZero() {
			clients = append(clients, identity{p.Address, p.status.RouterID})
		}
	}
	if err := r.file.save(clients); err != nil {
		r.log.Warn("clients not saved", "error", err)
	}
}

// addRouter dials a router, or waits for its connections. The caller holds the lock.
func (r *Reflector) addRouter(peer bgp.Peer) {
	config := r.config
	r.routers[peer.Address] = speaker.Keep(speaker.KeeperOptions{
		Local: config.Local, Peer: peer, Log: r.log.With("router", peer.Address),
		Ready: r.ready, Waiting: "waiting for the clients",
		Begin: func(ctx context.Context, conn *session.Pending, restarted bool) (*session.Session, error) {
			return r.instance.BeginRouter(ctx, &config, &peer, conn, restarted)
		},
		OnEstablished: func(*session.Session) { r.bfd.Established(peer.Address) },
	})
}
