// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// linePace is the mean time between two lines of a connection, the longest is
	// half as long again: thousands of clients leave two cores some room.
	linePace = time.Second
	// DatagramPace is the same between two datagrams of a flow.
	DatagramPace = 150 * time.Millisecond
	// lastTimeout is how long the last answers of a flow may take.
	lastTimeout = 2 * time.Second
	// ShortLines is the number of lines of short-lived connections.
	ShortLines = 3
	// dialers bounds the connections that are being opened: each takes a thread in
	// the client's namespace.
	dialers = 64
	// maxReports is how many broken connections, and lost datagrams, are described.
	maxReports = 10
)

// Destination is a VIP's address and port, and its servers.
type Destination struct {
	VIP     netip.AddrPort
	Servers *Presence
}

// Load is the clients of one phase, spread evenly over the targets.
type Load struct {
	// Dial opens connections where the clients are.
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Targets []Destination
	// Deaths are the times in which connections may end with their servers; nil:
	// never.
	Deaths *Deaths
	// Timeout bounds connecting and every answer.
	Timeout time.Duration
	// Late, if not 0, is the time after which the answer to a datagram doesn't count.
	Late time.Duration
	// Progress describes the first connections that break.
	Progress func(format string, args ...any)

	tally   *tally
	ids     atomic.Uint64
	dialing chan struct{}
	clients *errgroup.Group
	// over ends with the phase: clients then send for the last time.
	over context.Context
	end  context.CancelFunc
}

// Start opens connections and flows and returns when each has been answered, or has
// failed. From then on short-lived connections are opened at their rate, short a
// second, and connections that break are replaced. All end when ctx does.
func (l *Load) Start(ctx context.Context, connections, flows int, short float64) {
	l.tally, l.dialing = newTally(), make(chan struct{}, dialers)
	l.clients, l.over = errgroup.WithContext(ctx)
	l.over, l.end = context.WithCancel(l.over)
	var opening sync.WaitGroup
	client := func(run func(opened func()) error) {
		opening.Add(1)
		opened := sync.OnceFunc(opening.Done)
		l.clients.Go(func() error {
			defer opened()
			return run(opened)
		})
	}
	for n := range connections {
		client(func(opened func()) error { return l.hold(ctx, l.target(n), opened) })
	}
	for n := range flows {
		client(func(opened func()) error { return l.flow(ctx, l.target(n), opened) })
	}
	opening.Wait()
	l.tally.begin()
	if short > 0 {
		l.clients.Go(func() error { return l.openShort(ctx, short) })
	}
}

// Over ends when Stop is called or something fails.
func (l *Load) Over() context.Context { return l.over }

// Stop ends the phase and returns the counts when each client has got its last
// answer.
func (l *Load) Stop() (Counts, error) {
	l.end()
	err := l.clients.Wait()
	return l.tally.end(), err
}

func (l *Load) target(n int) *Destination { return &l.Targets[n%len(l.Targets)] }

// pause waits for a random time around the pace, or until the phase is over.
func (l *Load) pause(pace time.Duration) {
	ctx, cancel := context.WithTimeout(l.over, pace/2+rand.N(pace))
	defer cancel()
	<-ctx.Done()
}

// hold keeps a connection open, and opens another one when it breaks.
func (l *Load) hold(ctx context.Context, s *Destination, opened func()) error {
	for l.over.Err() == nil {
		if err := l.talk(ctx, s, math.MaxInt, opened); err != nil {
			return err
		}
		opened()
		l.pause(linePace)
	}
	return nil
}

// openShort opens short-lived connections.
func (l *Load) openShort(ctx context.Context, perSecond float64) error {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-l.over.Done():
			return nil
		case <-ticker.C:
			l.clients.Go(func() error { return l.talk(ctx, l.target(n), ShortLines, func() {}) })
		}
	}
}

// talk opens a connection, exchanges lines, fewer if the phase ends, and counts the
// result. Only errors that aren't the connection's are returned.
func (l *Load) talk(ctx context.Context, s *Destination, lines int, opened func()) error {
	stream, began := &stream{id: l.ids.Add(1), timeout: l.Timeout}, time.Now()
	err := l.open(ctx, "tcp", s, func(conn net.Conn) error {
		stream.attach(conn)
		for stream.sent < lines {
			last := l.over.Err() != nil
			if err := stream.exchange(); err != nil || last {
				return err
			}
			opened()
			l.pause(linePace)
		}
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err() // it breaks all connections
	}
	if err != nil && stream.conn == nil {
		err = &brokenError{unopened, err}
	}
	_, broken := errors.AsType[*brokenError](err)
	if broken && l.Deaths.took(stream.server, began) {
		l.tally.died(stream.sent)
		return nil
	}
	if n := l.tally.stream(stream.sent, err); err != nil && n <= maxReports {
		l.Progress("broken: %s: %v", stream.text(s), err)
	}
	if broken {
		return nil
	}
	return err
}

// flow runs a UDP flow for the whole phase and counts the result.
func (l *Load) flow(ctx context.Context, s *Destination, opened func()) error {
	return l.open(ctx, "udp", s, func(conn net.Conn) error {
		f := newFlow(conn, s.Servers, l.Late)
		for last := false; !last; {
			last = l.over.Err() != nil
			wait := DatagramPace
			if last {
				wait = lastTimeout
			}
			f.send()
			if err := f.receive(time.Now().Add(wait)); err != nil {
				return err
			}
			opened()
			l.pause(DatagramPace)
		}
		if len(f.moves) > 0 {
			l.Progress("moved: udp %s to %s after %s of silence", conn.LocalAddr(), s.VIP, f.silence)
		}
		if lost, n := slices.Sorted(maps.Keys(f.pending)), l.tally.flow(f); len(lost) > 0 && n <= maxReports {
			l.Progress("lost: udp %s to %s: of %d datagrams %d", conn.LocalAddr(), s.VIP, f.sent, lost)
		}
		return nil
	})
}

// open calls fn with a connection that is closed when fn or ctx ends.
func (l *Load) open(ctx context.Context, network string, s *Destination, fn func(net.Conn) error) error {
	conn, err := l.connect(ctx, network, s)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return fn(conn)
}

func (l *Load) connect(ctx context.Context, network string, s *Destination) (net.Conn, error) {
	l.dialing <- struct{}{}
	defer func() { <-l.dialing }()
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	return l.Dial(ctx, network, s.VIP.String())
}
