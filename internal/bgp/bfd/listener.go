// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"container/heap"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
)

// listener receives from all peers of one link and serves their sessions in one
// goroutine, on a thread of its own. It reads all that has arrived before it checks
// detection times: a process that was not scheduled for a while would blame its peers
// otherwise.
type listener struct {
	link link
	log  *slog.Logger
	// warnLate limits the warning about a missing real-time priority to one.
	warnLate *sync.Once
	// retry wakes the goroutine while it waits for the port.
	retry chan struct{}

	mu sync.Mutex
	// running is set while there is a goroutine, as long as there are sessions.
	running bool
	// in is nil while the port isn't available, problem why; waiter waits for in.
	in      *socket
	waiter  *waiter
	problem error
	// peers have one session each. sessions are all by their local discriminator,
	// including those that go administratively down.
	peers    map[netip.Addr]*entry
	sessions map[uint32]*entry
	queue    queue
	buffer   receiveBuffer
}

// retryPause is the time between two attempts to open the port.
const retryPause = time.Second

// burst is how many datagrams are read before sessions are served: more than a
// socket's buffer holds, so that it includes all that had arrived.
const burst = 1024

// stall is the longest delay of a thread with real-time priority, unless the whole
// machine was stopped.
const stall = 20 * time.Millisecond

func newListener(l link, log *slog.Logger, warnLate *sync.Once) *listener {
	return &listener{
		link: l, log: log, warnLate: warnLate, retry: make(chan struct{}, 1),
		peers: map[netip.Addr]*entry{}, sessions: map[uint32]*entry{},
	}
}

// add adds a session, and reports whether the listener's goroutine has to be started.
func (l *listener) add(s *session) (start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &entry{session: s}
	l.peers[s.peer.Address], l.sessions[s.local] = m, m
	heap.Push(&l.queue, m)
	l.wake()
	start, l.running = !l.running, true
	return start
}

// begin lets a session send.
func (l *listener) begin(address netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.peers[address]
	m.begin()
	l.requeue(m)
	l.wake()
}

// disable takes a session administratively down.
func (l *listener) disable(address netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.peers[address]
	delete(l.peers, address)
	m.disable(time.Now())
	l.requeue(m)
	l.wake()
}

// abandon removes all sessions.
func (l *listener) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.peers)
	for _, m := range l.sessions {
		l.remove(m)
	}
	l.wake()
}

// wake makes the goroutine process its sessions.
func (l *listener) wake() {
	if l.waiter != nil {
		l.waiter.wake()
		return
	}
	select {
	case l.retry <- struct{}{}:
	default:
	}
}

func (l *listener) has(discriminator uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.sessions[discriminator]
	return ok
}

// isUp reports whether a peer's session is up.
func (l *listener) isUp(address netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peers[address].state == up
}

// describe sets the fields of a peer's session.
func (l *listener) describe(state *bgp.PeerState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.peers[state.Address]
	state.BFD, state.BFDSince, state.BFDFlaps = m.state.public(), m.since, m.flaps
	switch {
	case m.state == up:
	case l.problem != nil:
		state.BFDReason = l.problem.Error()
	default:
		state.BFDReason = m.reason()
	}
}

// run serves sessions until there are none.
func (l *listener) run() {
	if err := setRealtime(); err != nil {
		l.warnLate.Do(func() {
			l.log.Info("bfd without real-time priority: packets may be late on a busy machine", slog.Any("reason", err))
		})
	}
	defer unsetRealtime()
	for {
		err := l.serve()
		if l.finish(err) {
			return
		}
		if err == nil {
			continue
		}
		select {
		case <-time.After(retryPause):
		case <-l.retry:
		}
	}
}

// serve receives until there is no session, or the socket fails.
func (l *listener) serve() error {
	in, err := l.link.listen()
	if err != nil {
		return err
	}
	waiter, err := newWaiter(in)
	if err != nil {
		return errors.Join(err, in.close())
	}
	l.mu.Lock()
	l.in, l.waiter, l.problem = in, waiter, nil
	l.mu.Unlock()
	for {
		next, flood, err := l.process()
		if err != nil || next.IsZero() {
			return err
		}
		if flood {
			yieldCPU()
			continue
		}
		if err := waiter.wait(next); err != nil {
			return err
		}
		if time.Since(next) > stall {
			// The whole machine was stopped: let the kernel first receive packets that
			// wait at its interfaces.
			yieldCPU()
		}
	}
}

// finish closes the port, keeps why it failed, and reports whether no session needs
// it.
func (l *listener) finish(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.in != nil {
		l.waiter.close()
		_ = l.in.close()
	}
	if err != nil && (l.problem == nil || err.Error() != l.problem.Error()) {
		l.log.Warn("bfd port not available", slog.Uint64("port", uint64(l.link.port())), slog.Any("reason", err))
	}
	l.in, l.waiter, l.problem = nil, nil, err
	// Without the port, no peer can confirm that a session is administratively down.
	for _, m := range l.sessions {
		if m.state == adminDown {
			l.remove(m)
		}
	}
	l.running = len(l.sessions) > 0
	return !l.running
}

// process does all that is due, and returns when more will be due: the zero Time if
// there is no session. A flood is more packets than can be read.
func (l *listener) process() (next time.Time, flood bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	flood, err = l.read()
	if err != nil {
		return time.Time{}, false, err
	}
	for {
		if len(l.queue) == 0 {
			return time.Time{}, flood, nil
		}
		m := l.queue[0]
		if m.wakes.After(now) {
			return m.wakes, flood, nil
		}
		l.service(m, now)
	}
}

// read handles the datagrams that have arrived, and reports whether there are still
// more.
func (l *listener) read() (flood bool, err error) {
	for range burst {
		d, err := l.in.receive(&l.buffer)
		if errors.Is(err, unix.EAGAIN) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		l.handle(&d)
	}
	return true, nil
}

// handle passes a datagram to its session.
func (l *listener) handle(d *datagram) {
	now := time.Now()
	m := l.peers[d.from]
	p, err := parse(d.payload)
	if other := l.sessions[p.your]; other != nil {
		m = other
	}
	if err == nil && m != nil {
		err = m.checkPath(now, l.link, d)
	}
	if err == nil && p.your != 0 {
		m = l.resolve(now, m, &p)
	}
	switch {
	case err == nil && m == nil:
		err = errUnknown
	case err == nil:
		err = m.receive(now, &p)
	}
	if m != nil {
		m.discarded = err
		l.requeue(m)
	}
	if err != nil {
		l.log.Debug("bfd packet discarded", slog.Any("from", d.from), slog.Any("reason", err))
	}
}

// resolve returns the session that a packet's discriminator selects, or nil. If no
// session has it, a new session with the packet's source may resume the former one.
func (l *listener) resolve(now time.Time, other *entry, p *packet) *entry {
	m := l.sessions[p.your]
	if m != nil || other == nil {
		return m
	}
	old := other.local
	if !other.resume(now, p) {
		return nil
	}
	delete(l.sessions, old)
	l.sessions[other.local] = other
	return other
}

// service runs the due timers of one session.
func (l *listener) service(m *entry, now time.Time) {
	m.expire(now)
	for {
		p, due := m.transmit(now)
		if !due {
			break
		}
		m.send(l.link, &p)
	}
	if m.finished(now) {
		l.remove(m)
		return
	}
	l.requeue(m)
}

func (l *listener) requeue(m *entry) {
	m.wakes = m.wake()
	heap.Fix(&l.queue, m.index)
}

func (l *listener) remove(m *entry) {
	delete(l.sessions, m.local)
	heap.Remove(&l.queue, m.index)
	m.close()
}

// entry is a session of a listener.
type entry struct {
	*session
	// wakes is when the session is to be served next, index its place in the queue.
	wakes time.Time
	index int

	// out sends the session's packets; nil before the first one, and after an error of
	// the path to the peer. source is its port.
	out    *socket
	source uint16
	// device is the interface towards the peer of a single-hop session, by the route at
	// routed.
	device int
	routed time.Time
	// problem is why the last packet wasn't sent, discarded why the last one received
	// was discarded; nil otherwise.
	problem, discarded error
}

// routeInterval is the shortest time between two queries of the route to a peer.
const routeInterval = time.Second

// checkPath returns why a datagram can't have come over the path to the peer. Packets of a
// single-hop session come from the same link, and through the interface towards the peer:
// others on the node, such as pods, can send with the peer's address.
func (m *entry) checkPath(now time.Time, l link, d *datagram) error {
	switch {
	case !l.multihop && d.hops != hopLimit:
		return fmt.Errorf("packet with TTL %d: want %d, as from the same link (RFC 5881 §5)", d.hops, hopLimit)
	case l.multihop && m.peer.MaxHops > 0 && d.hops < hopLimit+1-int(m.peer.MaxHops):
		return fmt.Errorf("packet with TTL %d: want at least %d by TTL security", d.hops, hopLimit+1-int(m.peer.MaxHops))
	case l.multihop || d.device == m.device:
		return nil
	}
	if now.Sub(m.routed) >= routeInterval {
		m.routed = now
		if route, err := m.peer.route(); err == nil {
			m.device = route.LinkIndex
		}
	}
	if d.device != m.device {
		return errInterface
	}
	return nil
}

// send sends a packet. Errors are kept for status; the next packet retries.
func (m *entry) send(l link, p *packet) {
	if m.out == nil {
		m.out, m.source, m.problem = l.dial(m.peer.Local, m.peer.Address, m.source)
		if m.problem != nil {
			return
		}
	}
	b := p.bytes()
	m.problem = m.out.send(b[:])
	if m.problem == nil {
		return
	}
	// ICMP errors of earlier packets are returned instead of sending.
	again := m.out.send(b[:])
	if again != nil && !errors.Is(again, unix.EAGAIN) && !errors.Is(again, unix.ECONNREFUSED) {
		// The local address may have changed.
		m.close()
	}
}

func (m *entry) close() {
	if m.out != nil {
		_ = m.out.close()
		m.out = nil
	}
}

// reason is why the session isn't up; the first applicable cause.
func (m *entry) reason() string {
	switch {
	case m.passive:
		return "waiting for the BGP session"
	case m.remoteState == adminDown:
		return "peer is administratively down"
	case errors.Is(m.problem, unix.ECONNREFUSED):
		return "peer does not run BFD: its port is closed"
	case m.problem != nil:
		return fmt.Sprintf("cannot send: %s", m.problem)
	case m.discarded != nil:
		return m.discarded.Error()
	case m.remote != 0 && m.state == down:
		return "received diagnostic: " + m.remoteDiagnostic.String()
	case m.remote != 0:
		return "peer is coming up"
	case m.diagnostic == DetectionTimeExpired:
		return "peer timed out"
	}
	return "no BFD packets received"
}

// queue orders sessions by wakes: a heap for container/heap.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].wakes.Before(q[j].wakes) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	m := x.(*entry)
	m.index = len(*q)
	*q = append(*q, m)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	m := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return m
}
