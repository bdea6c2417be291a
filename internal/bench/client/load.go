// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// linePace is the mean time between two lines of a connection; the longest is
	// half as long again. Thousands of clients leave two cores some room.
	linePace = time.Second
	// DatagramPace is the same between two datagrams of a flow.
	DatagramPace = 150 * time.Millisecond
	// lastDatagrams is how long those that are on their way in the end have.
	lastDatagrams = 2 * time.Second
	// VisitLines is how much short-lived connections say.
	VisitLines = 3
	// dialers bounds how many connections are opened at a time: each takes a
	// thread in the client's namespace.
	dialers = 64
	// complaints is how many broken connections are described.
	complaints = 10
)

// Target is a VIP's address and port with the servers behind it.
type Target struct {
	VIP     netip.AddrPort
	Servers *Presence
}

// Load is the clients of one phase. Connections and flows are spread over the
// targets evenly.
type Load struct {
	// Dial opens connections where the clients are.
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Targets []Target
	// Deaths explain why connections end; nil: nothing does.
	Deaths *Deaths
	// Patience is how long connecting and every answer may take.
	Patience time.Duration
	// Progress is told of the first connections that break.
	Progress func(format string, args ...any)

	tally   *tally
	ids     atomic.Uint64
	dialing chan struct{}
	clients *errgroup.Group
	// over ends with the phase: clients then try for the last time.
	over context.Context
	end  context.CancelFunc
}

// Start opens connections and flows and returns when all of them have been
// answered, or have failed. Visitors then come and go, so many a second if any,
// and the connections that break are replaced. All end when ctx does.
func (l *Load) Start(ctx context.Context, connections, flows int, visitors float64) {
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
	if visitors > 0 {
		l.clients.Go(func() error { return l.receive(ctx, visitors) })
	}
}

// Over ends when Stop is called or something fails.
func (l *Load) Over() context.Context { return l.over }

// Stop ends the phase and returns what the clients saw, when each has been
// answered for the last time.
func (l *Load) Stop() (Counts, error) {
	l.end()
	err := l.clients.Wait()
	return l.tally.counts, err
}

func (l *Load) target(n int) *Target { return &l.Targets[n%len(l.Targets)] }

// pause waits for a random time around the pace, or until the phase is over.
func (l *Load) pause(pace time.Duration) {
	ctx, cancel := context.WithTimeout(l.over, pace/2+rand.N(pace))
	defer cancel()
	<-ctx.Done()
}

// hold keeps a connection open, and opens another one when it breaks.
func (l *Load) hold(ctx context.Context, s *Target, opened func()) error {
	for l.over.Err() == nil {
		if err := l.talk(ctx, s, math.MaxInt, opened); err != nil {
			return err
		}
		opened()
		l.pause(linePace)
	}
	return nil
}

// receive has visitors come at their rate; each ends its connection after some
// lines.
func (l *Load) receive(ctx context.Context, perSecond float64) error {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-l.over.Done():
			return nil
		case <-ticker.C:
			l.clients.Go(func() error { return l.talk(ctx, l.target(n), VisitLines, func() {}) })
		}
	}
}

// talk opens a connection, exchanges so many lines, or fewer if the phase ends,
// and counts how it went. Whatever else goes wrong is an error.
func (l *Load) talk(ctx context.Context, s *Target, lines int, opened func()) error {
	stream, began := &stream{id: l.ids.Add(1), patience: l.Patience}, time.Now()
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
	if n := l.tally.stream(stream.sent, err); err != nil && n <= complaints {
		l.Progress("broken: %s: %v", stream.text(s), err)
	}
	if broken {
		return nil
	}
	return err
}

// flow runs a UDP flow for the whole phase and counts how it went.
func (l *Load) flow(ctx context.Context, s *Target, opened func()) error {
	return l.open(ctx, "udp", s, func(conn net.Conn) error {
		f := newFlow(conn, s.Servers)
		for last := false; !last; {
			last = l.over.Err() != nil
			wait := DatagramPace
			if last {
				wait = lastDatagrams
			}
			f.send()
			if err := f.receive(time.Now().Add(wait)); err != nil {
				return err
			}
			opened()
			l.pause(DatagramPace)
		}
		l.tally.flow(f)
		return nil
	})
}

// open lends fn a connection that is closed when fn or ctx ends.
func (l *Load) open(ctx context.Context, network string, s *Target, fn func(net.Conn) error) error {
	conn, err := l.connect(ctx, network, s)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return fn(conn)
}

func (l *Load) connect(ctx context.Context, network string, s *Target) (net.Conn, error) {
	l.dialing <- struct{}{}
	defer func() { <-l.dialing }()
	ctx, cancel := context.WithTimeout(ctx, l.Patience)
	defer cancel()
	return l.Dial(ctx, network, s.VIP.String())
}
