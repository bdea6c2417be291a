// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
	"fairlead.io/fairlead/internal/bgp/session"
	"fairlead.io/fairlead/internal/wait"
)

// Keeper keeps one configured peer connected: it dials the peer or accepts its
// connections, and retries after a loss. The reflector's routers have one, too.
type Keeper struct {
	KeeperOptions
	// incoming has the next connection of a passive peer.
	incoming chan *session.Pending

	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	session *session.Session // nil between sessions
	// vacant is set while any connection of a passive peer would begin a session.
	vacant bool
	// unidentified are connections of a passive peer without an OPEN, oldest first.
	unidentified []session.Conn
	// status is the peer's state besides that session. Its counters sum up former
	// sessions.
	status bgp.PeerState
	// stopped is set before the peer ends its session itself.
	stopped bool
	// bfdUp is set from the end of a session by BFD until the next connection, and gets a
	// value once BFD is up again.
	bfdUp chan struct{}
}

// Dialer connects to a peer as session.Dial does.
type Dialer func(context.Context, bgp.Local, *bgp.Peer) (session.Conn, error)

// KeeperOptions configure a Keeper.
type KeeperOptions struct {
	Local bgp.Local
	Peer  bgp.Peer
	Log   *slog.Logger
	// Dial connects to the peer.
	Dial Dialer
	// Ready is closed when sessions may begin, Waiting the reason until then.
	Ready   <-chan struct{}
	Waiting string
	// Begin begins a session over a connection, which it takes over. restarted is set
	// until one was established.
	Begin func(conn *session.Pending, restarted bool) *session.Session
	// OnEstablished is called for each established session, which waits for it.
	OnEstablished func()
}

// stable is how long a session has to live for the next attempt to follow at once.
const stable = 10 * time.Second

// Keep starts a Keeper. Stop ends it.
func Keep(o KeeperOptions) *Keeper {
	ctx, cancel := context.WithCancel(context.Background())
	k := &Keeper{
		KeeperOptions: o, incoming: make(chan *session.Pending, 1), done: make(chan struct{}),
		status: bgp.PeerState{
			Address: o.Peer.Address, ASN: o.Peer.ASN, State: bgp.Idle, Reason: o.Waiting,
		},
		cancel: cancel,
	}
	go k.run(ctx)
	return k
}

// Stop ends the session, if there is one, with a notification or with the zero one, and
// the Keeper. A peer that doesn't read delays it by up to a second.
func (k *Keeper) Stop(n session.Notification) {
	k.mu.Lock()
	k.stopped = true
	s := k.session
	for _, conn := range k.unidentified {
		conn.Close()
	}
	k.mu.Unlock()
	if s != nil {
		s.End(n)
	}
	k.cancel()
	<-k.done
	select {
	case conn := <-k.incoming:
		conn.Close()
	default:
	}
}

// run holds one session after another.
func (k *Keeper) run(ctx context.Context) {
	defer close(k.done)
	// BFD first resumes a former agent's session that the peer may have kept. If
	// BGP were established before and that session expired, the peer would end the
	// new BGP session for it.
	hold := time.Duration(0)
	if k.Peer.BFD != nil {
		hold = bfd.PassiveHold(*k.Peer.BFD)
	}
	k.sleep(ctx, hold)
	select {
	case <-k.Ready:
	case <-ctx.Done():
	}
	retry, failures := wait.Backoff{First: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.25}, 0
	said := "" // by the peer, as it ended the last session
	for restarted := true; ctx.Err() == nil; {
		conn, reason := k.connect(ctx)
		lived := time.Duration(0)
		if conn != nil {
			lived, reason = k.hold(ctx, conn, restarted)
			restarted = restarted && lived == 0
		}
		if ctx.Err() != nil {
			return
		}
		switch {
		case lived == 0 && said != "":
			reason += "; before that: " + said
		case lived > 0 && strings.HasPrefix(reason, session.Received):
			said = reason
		case lived > 0:
			said = ""
		}
		failures = countFailures(failures, lived)
		delay := retry.Delay(failures)
		k.mu.Lock()
		k.status.State, k.status.NextTry = bgp.Idle, time.Now().Add(delay)
		k.setReason(reason)
		k.mu.Unlock()
		k.sleep(ctx, delay)
	}
}

// countFailures returns how many attempts in a row have failed, after one more whose session
// lived that long.
func countFailures(before int, lived time.Duration) int {
	if lived >= stable {
		return 1
	}
	return before + 1
}

// sleep waits until the time has passed or ctx ends.
func (k *Keeper) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// connect returns a connection with the peer, or why there is none.
func (k *Keeper) connect(ctx context.Context) (*session.Pending, string) {
	if k.Peer.Passive {
		k.connecting(bgp.Active, "waiting for the peer to connect")
		select {
		case conn := <-k.incoming:
			return conn, ""
		case <-ctx.Done():
			return nil, ""
		}
	}
	k.connecting(bgp.Connect, "connecting")
	conn, err := k.Dial(ctx, k.Local, &k.Peer)
	if err != nil {
		return nil, err.Error()
	}
	k.awaitBFD(ctx)
	return &session.Pending{Conn: conn}, ""
}

// awaitBFD waits until BFD, if it ended the last session, is up again, at most for a second:
// the BFD of some routers lives only as long as BGP. FRR reports to its BGP that BFD is up, and
// ends a session that is established at that very moment.
func (k *Keeper) awaitBFD(ctx context.Context) {
	k.mu.Lock()
	up := k.bfdUp
	k.mu.Unlock()
	if up == nil {
		return
	}
	select {
	case <-up:
		k.sleep(ctx, 200*time.Millisecond)
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	k.mu.Lock()
	k.bfdUp = nil
	k.mu.Unlock()
}

// maxUnidentified bounds a passive peer's connections without an OPEN. Peers send it with
// their first packet.
const maxUnidentified = 16

// Accept takes a connection from the address of the passive peer. If there is a session,
// only the connection's OPEN can replace it: hosts whose addresses the router translates to
// its own can connect, too.
func (k *Keeper) Accept(conn session.Conn) {
	local := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr()
	misdirected := k.Peer.LocalAddress.IsValid() && local != k.Peer.LocalAddress
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.stopped || misdirected || session.SetTTL(conn, k.Local, &k.Peer) != nil:
		conn.Close()
	case k.vacant:
		k.vacant = false
		k.incoming <- &session.Pending{Conn: conn} // the peer may wait for an OPEN, too
	default:
		if len(k.unidentified) == maxUnidentified {
			k.unidentified[0].Close()
			k.unidentified = k.unidentified[1:]
		}
		k.unidentified = append(k.unidentified, conn)
		go k.identify(conn)
	}
}

// identify waits for the OPEN on a connection, and makes it the next session's if it
// supersedes the current one.
func (k *Keeper) identify(conn session.Conn) {
	pending, err := session.ReadOpen(conn)
	k.mu.Lock()
	k.unidentified = slices.DeleteFunc(k.unidentified, func(c session.Conn) bool { return c == conn })
	former := k.session
	k.mu.Unlock()
	if err == nil && former != nil && !former.SupersededBy(pending) {
		pending.Refuse(session.Collision)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil || k.stopped || pending.Open.ASN != k.Peer.ASN && !k.vacant {
		conn.Close()
		return
	}
	select {
	case old := <-k.incoming:
		old.Close()
	default:
	}
	k.vacant = false
	k.incoming <- pending
	if former != nil {
		former.Drop(session.Replaced)
	}
}

// hold holds a session over conn until it ends. It returns how long it was
// established and why it ended.
func (k *Keeper) hold(ctx context.Context, conn *session.Pending, restarted bool) (time.Duration, string) {
	s := k.Begin(conn, restarted)
	k.mu.Lock()
	k.session = s
	if len(k.incoming) > 0 { // its OPEN arrived before the session was here
		s.Drop(session.Replaced)
	}
	k.mu.Unlock()
	defer k.ended(s)
	select {
	case <-s.Established():
		k.Log.Info("bgp session established", "local", s.LocalAddress(), "routerID", s.Status().Open.RouterID)
		k.OnEstablished()
	case <-s.Ended():
	case <-ctx.Done():
	}
	select {
	case <-s.Ended():
	case <-ctx.Done():
		s.Drop("stopped")
		<-s.Ended()
	}
	status := s.Status()
	if status.State != bgp.Established {
		return 0, status.Reason
	}
	return time.Since(status.Since), status.Reason
}

// BFDChanged follows the peer's BFD session: when it goes down, so does BGP. Events of a
// former peer with the same address may still arrive here.
func (k *Keeper) BFDChanged(event bfd.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if event.New == bgp.BFDUp && len(k.bfdUp) < cap(k.bfdUp) {
		k.bfdUp <- struct{}{}
	}
	s := k.session
	if s == nil {
		return
	}
	status := s.Status()
	if status.State != bgp.Established || !event.Concerns(status.Since, k.Peer.BFD) {
		return
	}
	k.bfdUp = make(chan struct{}, 1)
	n := session.BFDDown
	n.Text = event.Diagnostic.String()
	go s.End(n)
}

// Session is the current one, nil between sessions.
func (k *Keeper) Session() *session.Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.session
}

// connecting notes that there is no connection yet. The reason of the last failure
// stays until the next one.
func (k *Keeper) connecting(state bgp.SessionState, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.vacant = k.Peer.Passive && len(k.incoming) == 0
	k.status.State, k.status.NextTry = state, time.Time{}
	if k.status.Reason == k.Waiting {
		k.status.Reason = reason
	}
}

// setReason notes why there is no session; mu is held. A repeated reason is logged once.
func (k *Keeper) setReason(reason string) {
	if k.status.Reason != reason && !k.stopped {
		k.Log.Warn("no bgp session", "reason", reason)
	}
	k.status.Reason = reason
}

// passwordFailed notes that the passive peer can't connect, as its password could
// not be read.
func (k *Keeper) passwordFailed(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session == nil {
		k.setReason(err.Error())
	}
}

func (k *Keeper) ended(s *session.Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session = nil
	k.status.OmittedRoutes, k.status.OmittedReason = 0, ""
	if s.Conclude(&k.status) {
		k.status.Reason = ""
	}
}

// omitted notes how many routes are not announced to the peer, and why.
func (k *Keeper) omitted(n int, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n > 0 && k.status.OmittedReason != reason {
		k.Log.Warn("routes not announced to the peer", "routes", n, "reason", reason)
	}
	k.status.OmittedRoutes, k.status.OmittedReason = uint64(n), reason
}

// State is the peer's current state.
func (k *Keeper) State() bgp.PeerState {
	k.mu.Lock()
	defer k.mu.Unlock()
	state := k.status
	if k.session != nil {
		k.session.Describe(&state)
	}
	return state
}
