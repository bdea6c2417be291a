// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
	"fairlead.io/fairlead/internal/bgp/gobgp"
)

// peer is a client or a router. Its fields are guarded by the reflector's lock.
type peer struct {
	bgp.Peer
	router bool
	// id is a client's router id, which tells it from others of the same address;
	// zero if it said none. key is what the library knows the peer by.
	id, key netip.Addr

	state bgp.SessionState
	// since is when the session became, or ceased to be, established, reason why it
	// isn't.
	since  time.Time
	reason string
	flaps  uint64
	// told is when the last End-of-RIB came; zero in a session without one.
	told time.Time
	// ready says that the library waits for a connection; waiting is one that came
	// before it did.
	ready   bool
	waiting *gobgp.Caller
	// link is the connection that the library had last; nil if it had none.
	link *gobgp.Link
	// kept is a client's connection that was lost and whose routes are kept; nil
	// once it has told its routes again.
	kept *gobgp.Link
	// begun says that there has been a session.
	begun bool
	// watched is how BFD watches the peer, if it does; alive says that it was up in
	// this session.
	watched bfd.Peer
	alive   bool
	// again is when a router is called again; zero unless that is being waited for.
	again time.Time
	// retry wakes who calls a router.
	retry chan struct{}
	// gone is closed when the peer is no longer configured.
	gone chan struct{}
}

// described tells the log which peer it is.
func (p *peer) described() []any {
	if p.router {
		return []any{"router", p.Address}
	}
	return []any{"client", p.Address, "routerID", p.id}
}

// discard closes a connection that nobody waits for any more.
func (p *peer) discard() {
	if p.waiting != nil {
		_ = p.waiting.Close()
		p.waiting = nil
	}
}

// offer gives a connection to the router of that address, or to the client of that
// address and the caller's router id, which is made if it is new. The caller of
// this function holds the lock.
func (r *Reflector) offer(address netip.Addr, caller *gobgp.Caller) error {
	p := r.peers[address]
	if p == nil {
		p = r.client(address, caller.RouterID)
	}
	if p != nil && p.router && !p.Passive {
		return fmt.Errorf("router %s: it is called from here", address)
	}
	if p == nil {
		var err error
		if p, err = r.addClient(address, caller.RouterID); err != nil {
			return err
		}
	}
	r.hand(p, caller)
	return nil
}

// wants reports whether the configuration has the peer, as it is.
func (r *Reflector) wants(p *peer) bool {
	router := r.config.Router(p.Address)
	if p.router || router != nil {
		return p.router && router != nil && router.Equal(&p.Peer)
	}
	from := r.config.Range(p.Address)
	if from == nil {
		return false
	}
	client := from.Peer(p.Address)
	return client.Equal(&p.Peer)
}

// client is the one of that address and router id; nil if there is none.
func (r *Reflector) client(address, id netip.Addr) *peer {
	for _, p := range r.peers {
		if !p.router && p.Address == address && p.id == id {
			return p
		}
	}
	return nil
}

// hand gives the library a connection, or keeps the latest one until the library
// is ready: after the loss of a session whose routes it keeps that takes seconds.
func (r *Reflector) hand(p *peer, caller *gobgp.Caller) {
	if r.ctx.Err() != nil { // the library may take none any more
		_ = caller.Close()
		return
	}
	if !p.ready {
		p.discard()
		p.waiting = caller
		return
	}
	p.ready = false
	if p.router {
		p.link = r.library.AcceptRouter(caller, p.Peer, !p.begun)
		return
	}
	p.link = r.library.AcceptClient(caller, p.key, p.Peer)
}

func (r *Reflector) addClient(address, id netip.Addr) (*peer, error) {
	from := r.config.Range(address)
	if from == nil {
		return nil, errNoRange
	}
	n := 0
	for _, p := range r.peers {
		if !p.router && from.Prefix.Contains(p.Address) {
			n++
		}
	}
	if n >= from.Most {
		return nil, fmt.Errorf("range %s: %d clients are there already", from.Prefix, n)
	}
	r.met++
	p := &peer{Peer: from.Peer(address), id: id, key: gobgp.ClientKey(r.met), state: bgp.Idle, gone: make(chan struct{})}
	if err := r.library.AddClient(r.ctx, &r.config, p.key, p.Peer); err != nil {
		return nil, err
	}
	r.peers[p.key] = p
	return p, nil
}

// changed follows a session.
func (r *Reflector) changed(c gobgp.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[c.Peer]
	if p == nil || c.State == bgp.Idle && c.Removed {
		return // removed by us, and maybe there again
	}
	was := p.state
	p.state = c.State
	switch c.State {
	case bgp.Active:
		p.ready = true
		if caller := p.waiting; caller != nil {
			p.waiting = nil
			r.hand(p, caller)
		}
	case bgp.Established:
		p.since, p.reason, p.told, p.alive, p.begun = time.Now(), "", time.Time{}, false, true
		r.log.Info("session established", p.described()...)
		p.survey()
		r.watch()
		r.note()
	case bgp.Idle:
		r.ended(p, c, was)
	case bgp.Connect, bgp.OpenSent, bgp.OpenConfirm: // on the way
	}
}

// ended takes note of a session's end, or of an attempt that failed.
func (r *Reflector) ended(p *peer, c gobgp.Change, was bgp.SessionState) {
	p.reason = "session ended"
	if p.link != nil && p.link.Reason() != "" {
		p.reason = p.link.Reason()
	}
	if was == bgp.Established {
		p.since = time.Now()
		p.flaps++
	}
	// A session that this side ended, as its hold timer does, is lost: the library
	// would take that for a restart, but nobody knows what became of who hangs.
	kept := c.Kept && !p.router && (p.link == nil || !p.link.Refused())
	switch {
	case kept:
		p.kept, p.link = p.link, nil
		r.log.Warn("client lost, its routes are kept while it may be restarting", p.described()...)
	case was == bgp.Established || r.quota.take(time.Now()):
		r.log.Warn("session ended", append(p.described(), "reason", p.reason)...)
	}
	if !kept {
		r.remove(p)
	}
	r.watch()
}

// drop ends a peer's session by our own decision. The caller holds the lock.
func (r *Reflector) drop(p *peer, reason string) {
	r.log.Warn("peer dropped", append(p.described(), "reason", reason)...)
	if p.state == bgp.Established {
		p.since = time.Now()
		p.flaps++
	}
	p.reason = reason
	r.remove(p)
}

// remove makes the library forget a peer and its routes. A client is forgotten
// too, unless it has called again already; a router is called again, unless it is
// no longer configured.
func (r *Reflector) remove(p *peer) {
	if err := r.library.Remove(r.ctx, p.key); err != nil {
		r.log.Debug("peer not removed", append(p.described(), "error", err)...)
	}
	p.state, p.ready, p.told, p.alive = bgp.Idle, false, time.Time{}, false
	caller := p.waiting
	p.waiting = nil
	if p.router && r.wants(p) {
		r.rest(p, caller)
		return
	}
	delete(r.peers, p.key)
	close(p.gone)
	r.note()
	if caller == nil {
		return
	}
	if err := r.offer(p.Address, caller); err != nil {
		_ = caller.Close()
	}
}

// note remembers who is a client now.
func (r *Reflector) note() {
	if r.ctx.Err() != nil {
		return // it is us who leave, not they
	}
	var clients []identity
	for _, p := range r.peers {
		if !p.router && !p.since.IsZero() {
			clients = append(clients, identity{p.Address, p.id})
		}
	}
	if err := r.book.write(clients); err != nil {
		r.log.Warn("clients not remembered", "error", err)
	}
}
