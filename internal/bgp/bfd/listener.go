// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"container/heap"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// listener hears all peers of one link and serves their sessions, one after the
// other in one goroutine on a thread of its own. What has arrived is always read
// before a peer is called silent: a process that was not run for a while would
// blame its peers otherwise.
type listener struct {
	link link
	log  *slog.Logger
	// late has it said once, for all listeners, that they may be late.
	late *sync.Once
	// retry wakes the goroutine when it waits for the port.
	retry chan struct{}

	mu sync.Mutex
	// running says that there is a goroutine: as long as there are sessions.
	running bool
	// in is nil while the port can't be had, problem why; waiter waits for in.
	in      *socket
	waiter  *waiter
	problem error
	// peers have one session each, sessions are all, by the own discriminator: also
	// those that are being left.
	peers    map[netip.Addr]*member
	sessions map[uint32]*member
	queue    queue
	buffer   receiveBuffer
}

// retryPause is between two tries to have the port.
const retryPause = time.Second

// burst is how many datagrams are read before sessions are looked at: more than
// a socket's buffer holds, so that all that had arrived has been read.
const burst = 1024

// stall is by how much a thread that goes before all others is late at most,
// unless it isn't its fault.
const stall = 20 * time.Millisecond

func newListener(l link, log *slog.Logger, late *sync.Once) *listener {
	return &listener{
		link: l, log: log, late: late, retry: make(chan struct{}, 1),
		peers: map[netip.Addr]*member{}, sessions: map[uint32]*member{},
	}
}

// run serves sessions until there are none.
func (l *listener) run() {
	if err := hurry(); err != nil {
		l.late.Do(func() { l.log.Info("bfd may be late on a busy machine", slog.Any("reason", err)) })
	}
	defer calm()
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

// serve hears peers until there is no session, or the socket fails.
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
		next, flood, err := l.attend()
		if err != nil || next.IsZero() {
			return err
		}
		if flood {
			rest()
			continue
		}
		if err := waiter.wait(next); err != nil {
			return err
		}
		if time.Since(next) > stall {
			// The whole machine stood still: let the kernel take first what is waiting
			// at its interfaces.
			rest()
		}
	}
}

// finish gives the port back, notes why it isn't heard and reports whether nobody
// needs it.
func (l *listener) finish(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.in != nil {
		l.waiter.close()
		_ = l.in.close()
	}
	if err != nil && (l.problem == nil || err.Error() != l.problem.Error()) {
		l.log.Warn("bfd does not hear its peers", slog.Uint64("port", uint64(l.link.port())), slog.Any("reason", err))
	}
	l.in, l.waiter, l.problem = nil, nil, err
	// Who can't hear can't learn whether a peer knows that it is left.
	for _, m := range l.sessions {
		if m.state == adminDown {
			l.remove(m)
		}
	}
	l.running = len(l.sessions) > 0
	return !l.running
}

// attend does all that is due, and returns when there will be more to do; the zero
// Time is never, as there is no session. A flood is more packets than can be read.
func (l *listener) attend() (next time.Time, flood bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	flood, err = l.read()
	if err != nil {
		return time.Time{}, false, err
	}
	for {
		at, some := l.queue.next()
		if !some || at.After(now) {
			return at, flood, nil
		}
		l.look(l.queue[0], now)
	}
}

// read takes what has arrived, and reports whether there is no end of it.
func (l *listener) read() (flood bool, err error) {
	for range burst {
		d, err := l.in.receive(&l.buffer)
		if errors.Is(err, unix.EAGAIN) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		l.hear(&d)
	}
	return true, nil
}

// hear gives a datagram to its session.
func (l *listener) hear(d *datagram) {
	p, err := parse(d.payload)
	if err == nil {
		err = l.link.admit(d)
	}
	m := l.peers[d.from]
	if err == nil && p.your != 0 {
		m = l.owner(m, &p)
	}
	switch {
	case err == nil && m == nil:
		err = errUnknown
	case err == nil:
		err = m.receive(time.Now(), &p)
	}
	if m != nil {
		m.refused = err
		l.requeue(m)
	}
	if err != nil {
		l.log.Debug("bfd packet discarded", slog.Any("from", d.from), slog.Any("reason", err))
	}
}

// owner returns whose session a packet with a discriminator is of, or nil: that of
// another with this address, which has just begun, if no session has that
// discriminator and it can be resumed.
func (l *listener) owner(other *member, p *packet) *member {
	m := l.sessions[p.your]
	if m != nil || other == nil {
		return m
	}
	old := other.local
	if !other.resume(time.Now(), p) {
		return nil
	}
	delete(l.sessions, old)
	l.sessions[other.local] = other
	return other
}

// look does what is due in one session.
func (l *listener) look(m *member, now time.Time) {
	m.expire(now)
	for {
		p, due := m.transmit(now)
		if !due {
			break
		}
		m.send(l.link, &p)
	}
	if m.left(now) {
		l.remove(m)
		return
	}
	l.requeue(m)
}

func (l *listener) requeue(m *member) {
	m.wakes = m.wake()
	heap.Fix(&l.queue, m.place)
}

func (l *listener) remove(m *member) {
	delete(l.sessions, m.local)
	heap.Remove(&l.queue, m.place)
	m.close()
}
