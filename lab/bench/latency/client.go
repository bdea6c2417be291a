// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// answerTimeout bounds connecting, and the time of the last answers.
const answerTimeout = 20 * time.Second

// client sends equal requests over connections that stay open.
type client struct {
	conns   []net.Conn
	request []byte
	answer  int // size with header in bytes, equal for all
}

// open opens connections to an HTTP server that has a file of a size, for a time or until ctx ends.
func open(ctx context.Context, size int, length time.Duration, dial func() (net.Conn, error)) (*client, error) {
	const connections = 64
	c := &client{request: fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: server\r\n\r\n", netlab.SizePath(size))}
	for range connections {
		conn, err := dial()
		if err == nil {
			c.conns = append(c.conns, conn)
			err = errors.Join(conn.SetDeadline(time.Now().Add(length+answerTimeout)), c.measure(conn, size))
		}
		if err != nil {
			c.close()
			return nil, err
		}
	}
	context.AfterFunc(ctx, c.close)
	return c, nil
}

// measure gets one answer and takes its size.
func (c *client) measure(conn net.Conn, size int) error {
	_, err := conn.Write(c.request)
	seen := make([]byte, 0, 1024+size)
	for end, n := -1, 0; err == nil && (end < 0 || len(seen) < end+4+size); end = bytes.Index(seen, []byte("\r\n\r\n")) {
		n, err = conn.Read(seen[len(seen):cap(seen)])
		seen = seen[:len(seen)+n]
	}
	if err == nil && !bytes.HasPrefix(seen, []byte("HTTP/1.1 200 ")) {
		err = fmt.Errorf("answer %q", seen)
	}
	c.answer = len(seen)
	return err
}

func (c *client) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// send sends requests at a rate a second, whether earlier ones have been answered or not, and
// returns the latencies in milliseconds. The times of sending are fixed beforehand, and latency
// counts from there, so a client or a server that stalls delays all requests of that time.
func (c *client) send(rate float64, length time.Duration) (bench.Runs, error) {
	begin := time.Now().Add(10 * time.Millisecond)
	due := func(n int) time.Time { return begin.Add(time.Duration(float64(n) / rate * float64(time.Second))) }
	each := max(1, int(rate*length.Seconds())/len(c.conns)) // requests of a connection
	latencies := make(bench.Runs, each*len(c.conns))
	var all errgroup.Group
	for i, conn := range c.conns {
		all.Go(func() error {
			return c.receive(conn, each, func(nth int) {
				n := nth*len(c.conns) + i
				latencies[n] = bench.Milliseconds(time.Since(due(n)))
			})
		})
	}
	err := netlab.OnThread(func() error {
		err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		for n := 0; n < len(latencies) && err == nil; n++ {
			// The runtime's timers are precise to a millisecond.
			for left := time.Until(due(n)); left > 0; left = time.Until(due(n)) {
				ts := unix.NsecToTimespec(left.Nanoseconds())
				_ = unix.Nanosleep(&ts, nil) // once more if a signal ends it
			}
			_, err = c.conns[n%len(c.conns)].Write(c.request)
		}
		return err
	})
	if err != nil {
		c.close() // for the receivers
	}
	return latencies, errors.Join(err, all.Wait())
}

// receive calls answered for each of n answers, which arrive in the order of the requests.
func (c *client) receive(conn net.Conn, n int, answered func(nth int)) error {
	buffer := make([]byte, 16<<10)
	received := 0
	for nth := 0; nth < n; {
		read, err := conn.Read(buffer)
		if err != nil {
			return fmt.Errorf("answer %d of %d: %w", nth+1, n, err)
		}
		for received += read; received >= c.answer; received -= c.answer {
			answered(nth)
			nth++
		}
	}
	return nil
}

// most returns how many requests a second are answered if each connection sends the next one
// after an answer.
func (c *client) most(length time.Duration) (float64, error) {
	var all errgroup.Group
	var answers atomic.Int64
	end := time.Now().Add(length)
	for _, conn := range c.conns {
		all.Go(func() (err error) {
			for err == nil && time.Now().Before(end) {
				if _, err = conn.Write(c.request); err == nil {
					err = c.receive(conn, 1, func(int) { answers.Add(1) })
				}
			}
			return err
		})
	}
	err := all.Wait()
	return float64(answers.Load()) / length.Seconds(), err
}
