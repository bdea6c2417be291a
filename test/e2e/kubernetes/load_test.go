// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/test/cluster"
	"fairlead.io/fairlead/test/e2e/harness"
)

// The load of one address: visitors ask once on each connection, regulars keep
// theirs. On two families that is some 150 and 500 requests a second on a machine
// with nothing else to do. Behind a NAT with few ports each port has one connection
// of two requests after the other.
const (
	visitors    = 4
	visitorPace = 50 * time.Millisecond
	regulars    = 50
	regularPace = 200 * time.Millisecond
	// Half of the regulars take a new connection after so many requests, so that new
	// pods get some.
	shortTalk = 30
	firstPort = 30000
	ports     = 32
	portTalk  = 2
)

var errPaused = errors.New("the pause is over")

// load is clients who ask nginx all the time.
type load struct {
	from *cluster.Machine
	// over ends the load.
	over context.Context
	end  context.CancelFunc
	all  sync.WaitGroup

	mu   sync.Mutex
	toll toll
	// served counts the connections of regulars that are being served now.
	served int
	// regulars is how many of them there are.
	regulars int
}

// toll has the results of clients during a change.
type toll struct {
	// Requests were answered, in so many Connections.
	Requests, Connections int
	// Slowest is the longest that an answer took.
	Slowest time.Duration
	// Lost are requests without an answer, of visitors.
	Lost []error
	// Closed counts the connections that a pod closed between two requests, as it
	// should before it ends.
	Closed int
	// Broken are connections that ended in any other way.
	Broken []breakage
}

// breakage is the end of a connection with a pod, which is empty if none has answered, and when it began.
type breakage struct {
	pod   string
	began time.Time
	err   error
}

func (b breakage) String() string { return b.pod + ": " + b.err.Error() }

// startLoad has clients ask at port 80 of the addresses.
func startLoad(ctx context.Context, from *cluster.Machine, vips []netip.Addr) *load {
	l := &load{from: from, regulars: regulars * len(vips)}
	l.over, l.end = context.WithCancel(ctx)
	for _, vip := range vips {
		address := netip.AddrPortFrom(vip, 80).String()
		for range visitors {
			l.all.Go(func() { l.visit(address) })
		}
		for n := range regulars {
			requests := math.MaxInt
			if n%2 == 0 {
				requests = shortTalk
			}
			l.all.Go(func() { l.stay(address, requests) })
		}
	}
	return l
}

// stop ends the load and returns its results.
func (l *load) stop() toll {
	l.end()
	l.all.Wait()
	return l.toll
}

// goOn waits until every regular has a connection and so many requests more have been
// answered.
func (l *load) goOn(t *testing.T) {
	t.Helper()
	const more = 500
	want := l.answered() + more
	cluster.Await(t, "clients to be served", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.toll.Requests < want || l.served < l.regulars {
			return fmt.Errorf("%d of %d requests answered, %d connections", l.toll.Requests, want, l.served)
		}
		return nil
	})
}

func (l *load) answered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.toll.Requests
}

func (l *load) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.toll.Connections
}

// count changes the toll.
func (l *load) count(change func(*toll)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.toll)
}

// visit asks again and again, each time on a connection of its own.
func (l *load) visit(address string) {
	_ = l.from.Do(func() error {
		for pause(l.over, visitorPace) {
			began := time.Now()
			err := visitOnce(address)
			took := time.Since(began)
			l.count(func(t *toll) {
				if err != nil {
					t.Lost = append(t.Lost, fmt.Errorf("%s after %s: %w", address, took.Round(time.Millisecond), err))
					return
				}
				t.Requests++
				t.Connections++
				t.Slowest = max(t.Slowest, took)
			})
		}
		return nil
	})
}

// stay keeps a connection open for so many requests, and opens another one when it
// ends.
func (l *load) stay(address string, requests int) {
	for l.over.Err() == nil {
		l.keep(address, requests)
	}
}

// keep asks on one connection until it ends, the load does, or that was enough.
func (l *load) keep(address string, requests int) {
	ctx, cancel := context.WithTimeout(l.over, harness.AnswerTimeout)
	conn, err := l.from.Dial(ctx, "tcp", address)
	cancel()
	if err != nil {
		if l.over.Err() == nil {
			l.count(func(t *toll) { t.Broken = append(t.Broken, breakage{err: err}) })
		}
		return
	}
	defer conn.Close()
	l.count(func(*toll) { l.served++ })
	defer l.count(func(*toll) { l.served-- })
	l.talk(conn, address, requests)
}

// reusePorts adds clients behind a NAT with few ports.
func (l *load) reusePorts(vips []netip.Addr) {
	for _, vip := range vips {
		for n := range ports {
			l.all.Go(func() { l.reuse(netip.AddrPortFrom(vip, 80).String(), firstPort+n) })
		}
	}
}

// reuse asks on one connection after the other, all from one port. They end with a RST, so that no
// socket keeps the port.
func (l *load) reuse(address string, port int) {
	_ = l.from.Do(func() error {
		for pause(l.over, visitorPace) {
			conn, err := dialFrom(l.over, port, address)
			if err == nil {
				l.talk(conn, address, portTalk)
				err = conn.Close()
			}
			if err != nil && l.over.Err() == nil {
				l.count(func(t *toll) { t.Lost = append(t.Lost, fmt.Errorf("port %d: %w", port, err)) })
			}
		}
		return nil
	})
}

// dialFrom opens a connection from a port, where the thread is. It ends with a RST. Connections to
// several addresses may have the port.
func dialFrom(ctx context.Context, port int, address string) (net.Conn, error) {
	dialer := net.Dialer{
		LocalAddr: &net.TCPAddr{Port: port}, Timeout: harness.AnswerTimeout,
		Control: func(_, _ string, raw syscall.RawConn) error {
			var set error
			err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			return errors.Join(err, set)
		},
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn, conn.(*net.TCPConn).SetLinger(0)
}

// talk asks on a connection until it ends, the load does, or that was enough.
func (l *load) talk(conn net.Conn, address string, requests int) {
	c := harness.NewClient(conn)
	opened := time.Now()
	l.count(func(t *toll) { t.Connections++ })
	for ; requests > 0 && l.over.Err() == nil; requests-- {
		began := time.Now()
		err := c.Query()
		took := time.Since(began)
		if err == nil {
			l.count(func(t *toll) { t.Requests++; t.Slowest = max(t.Slowest, took) })
			err = idle(c, regularPace)
		}
		switch {
		case errors.Is(err, harness.ErrClosed):
			l.count(func(t *toll) { t.Closed++ })
			return
		case err != nil:
			l.count(func(t *toll) {
				t.Broken = append(t.Broken, breakage{c.Server, opened, fmt.Errorf("%s to %s: %w", conn.LocalAddr(), address, err)})
			})
			return
		}
	}
}

// visitOnce asks once, where the thread is.
func visitOnce(address string) error {
	conn, err := net.DialTimeout("tcp", address, harness.AnswerTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := harness.NewClient(conn).Query(); err != nil && !errors.Is(err, harness.ErrClosed) {
		return err
	}
	return nil
}

// idle waits before the next request. The error is harness.ErrClosed if the server ends
// the connection meanwhile.
func idle(c *harness.Client, pace time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(pace)); err != nil {
		return err
	}
	_, err := c.Answers.Peek(1)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err == io.EOF:
		return harness.ErrClosed
	case err == nil:
		return errors.New("an answer to no question")
	}
	return err
}

// pause waits, and reports whether the load continues.
func pause(ctx context.Context, pace time.Duration) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, pace, errPaused)
	defer cancel()
	<-ctx.Done()
	return errors.Is(context.Cause(ctx), errPaused)
}
