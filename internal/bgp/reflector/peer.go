// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"net"
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
	waiting *net.TCPConn
	// link is the connection that the library had last; nil if it had none.
	link *gobgp.Link
	// kept is a client's connection that was lost and whose routes are kept; nil
	// once it has told its routes again.
	kept *gobgp.Link
	// begun says that there has been a session.
	begun bool
	// alive says that BFD was up in this session.
	alive bool
	// again is when a router is called again; zero unless that is being waited for.
	again time.Time
	// retry wakes who calls a router.
	retry chan struct{}
	// gone is closed when the peer is no longer configured.
	gone chan struct{}
}

// name is the word for the peer in the log.
func (p *peer) name() string {
	if p.router {
		return "router"
	}
	return "client"
}

// discard closes a connection that nobody waits for any more.
func (p *peer) discard() {
	if p.waiting != nil {
		_ = p.waiting.Close()
		p.waiting = nil
	}
}

// offer gives a connection to the peer of that address, which is made if it is a
// new client. The caller holds the lock.
func (r *Reflector) offer(address netip.Addr, conn *net.TCPConn) error {
	p := r.peers[address]
	if p != nil && p.router && !p.Passive {
		return fmt.Errorf("router %s: it is called from here", address)
	}
	if p == nil {
		var err error
		if p, err = r.addClient(address); err != nil {
			return err
		}
	}
	r.hand(p, conn)
	return nil
}

// hand gives the library a connection, or keeps the latest one until the library
// is ready: after the loss of a session whose routes it keeps that takes seconds.
func (r *Reflector) hand(p *peer, conn *net.TCPConn) {
	if !p.ready {
		p.discard()
		p.waiting = conn
		return
	}
	p.ready = false
	if p.router {
		p.link = r.library.AcceptRouter(conn, p.Peer, !p.begun)
		return
	}
	p.link = r.library.AcceptClient(conn, p.Peer)
}

func (r *Reflector) addClient(address netip.Addr) (*peer, error) {
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
	p := &peer{Peer: from.Peer(address), state: bgp.Idle, gone: make(chan struct{})}
	if err := r.library.AddClient(r.ctx, &r.config, p.Peer); err != nil {
		return nil, err
	}
	r.peers[address] = p
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
	switch {
	case c.State == bgp.Active:
		p.ready = true
		if conn := p.waiting; conn != nil {
			p.waiting = nil
			r.hand(p, conn)
		}
	case c.State == bgp.Established:
		p.since, p.reason, p.told, p.alive, p.begun = time.Now(), "", time.Time{}, false, true
		r.log.Info(p.name()+" established", "address", p.Address, "as", p.ASN)
		r.watch()
		r.note()
	case c.State == bgp.Idle:
		r.ended(p, c, was)
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
		r.log.Warn("client lost, its routes are kept while it may be restarting", "address", p.Address)
	case was == bgp.Established || r.quota.take(time.Now()):
		r.log.Warn(p.name()+" lost", "address", p.Address, "reason", p.reason)
	}
	if !kept {
		r.remove(p)
	}
	r.watch()
}

// drop ends a peer's session by our own decision. The caller holds the lock.
func (r *Reflector) drop(p *peer, reason string) {
	r.log.Warn(p.name()+" dropped", "address", p.Address, "reason", reason)
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
	if err := r.library.Remove(r.ctx, p.Address); err != nil {
		r.log.Debug("peer not removed", "address", p.Address, "error", err)
	}
	p.state, p.ready, p.told, p.alive = bgp.Idle, false, time.Time{}, false
	conn := p.waiting
	p.waiting = nil
	if router := r.config.Router(p.Address); p.router && router != nil && same(router, &p.Peer) {
		r.rest(p, conn)
		return
	}
	delete(r.peers, p.Address)
	close(p.gone)
	r.note()
	if conn == nil {
		return
	}
	if err := r.offer(p.Address, conn); err != nil {
		_ = conn.Close()
	}
}

// note remembers who is a client now.
func (r *Reflector) note() {
	if r.ctx.Err() != nil {
		return // it is us who leave, not they
	}
	var clients []netip.Addr
	for address, p := range r.peers {
		if !p.router && !p.since.IsZero() {
			clients = append(clients, address)
		}
	}
	if err := r.book.write(clients); err != nil {
		r.log.Warn("clients not remembered", "error", err)
	}
}

// watch has BFD watch those who are established, and routers always.
func (r *Reflector) watch() {
	var wanted []bfd.Peer
	for _, p := range r.peers {
		if p.BFD == nil || !p.router && p.state != bgp.Established {
			continue
		}
		wanted = append(wanted, bfd.Peer{
			Address: p.Address, Local: p.LocalAddress, BFD: *p.BFD, Multihop: p.Multihop > 0 || p.TTLSecurity > 1,
		})
	}
	if err := r.watcher.Set(wanted); err != nil {
		r.log.Error("peers not watched by BFD", "error", err)
	}
}

// watched ends the session with a peer that BFD found dead, if BFD was up in that
// session: there are peers whose BFD lives only as long as BGP. A peer that takes
// BFD down on purpose isn't dead (RFC 5882 §3.2).
func (r *Reflector) watched(e bfd.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[e.Peer]
	if p == nil || p.state != bgp.Established {
		return
	}
	switch {
	case e.New == bgp.BFDUp:
		p.alive = true
	case e.Old == bgp.BFDUp && e.New == bgp.BFDDown && !e.RemoteAdminDown && p.seenAlive(e.At):
		r.drop(p, "BFD down: "+e.Diagnostic.String())
		r.watch()
	}
}

// seenAlive reports whether BFD was up in the session: it came up in it, or the
// session has lived for so long that it would have ended without.
func (p *peer) seenAlive(now time.Time) bool {
	return p.alive || now.Sub(p.since) > p.BFD.Interval*time.Duration(p.BFD.Multiplier)
}
