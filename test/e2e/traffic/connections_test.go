// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

const (
	// dialing is how many connections of a crowd are opened at a time.
	dialing = 32
	// speaking is how many have a line on its way: a link of the lab holds 256 frames,
	// which a busy machine may leave there, and a relayed line passes it twice.
	speaking = 64
)

// connections are many TCP connections to the echo service of a VIP that are held open
// (netlab.Echo over TCP, at port 7).
type connections struct{ members []*connection }

// connection is one connection. Each line is answered by the server that answered
// the first one.
type connection struct {
	net.Conn
	name   string
	answer *bufio.Reader
	server string
	lines  atomic.Int64 // answered so far
}

// connections opens TCP connections from a host; each has a line echoed. They are closed
// when the test ends.
func (l *lab) connections(t *testing.T, host, vip string, size int) *connections {
	t.Helper()
	c := &connections{members: make([]*connection, size)}
	var group errgroup.Group
	group.SetLimit(dialing)
	for i := range c.members {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
			defer cancel()
			conn, err := l.Dial(ctx, host, "tcp", net.JoinHostPort(vip, "7"))
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			c.members[i] = &connection{Conn: conn, name: fmt.Sprintf("%s %s %d", host, vip, i), answer: bufio.NewReader(conn)}
			return c.members[i].speak()
		})
	}
	t.Cleanup(c.close)
	if err := group.Wait(); err != nil {
		t.Fatalf("%s: %s: %v", host, vip, err)
	}
	return c
}

func (c *connections) close() {
	for _, m := range c.members {
		if m != nil {
			_ = m.Close()
		}
	}
}

// leave closes the connections of servers whose names begin like that.
func (c *connections) leave(prefix string) {
	c.members = slices.DeleteFunc(c.members, func(m *connection) bool {
		if !strings.HasPrefix(m.server, prefix) {
			return false
		}
		_ = m.Close()
		return true
	})
}

// speak has a line echoed, each time of another length.
func (m *connection) speak() error {
	round := m.lines.Load()
	line := fmt.Sprintf("%s, line %d %s\n", m.name, round, strings.Repeat("-", int(round*97%1300)))
	if err := m.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		return err
	}
	if _, err := m.Write([]byte(line)); err != nil {
		return fmt.Errorf("%s: line %d: %w", m.name, round, err)
	}
	answer, err := m.answer.ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s: line %d: %w", m.name, round, err)
	}
	server, echoed, _ := strings.Cut(answer, " ")
	switch {
	case echoed != line:
		return fmt.Errorf("%s: line %d came back as %q", m.name, round, answer)
	case m.server != "" && m.server != server:
		return fmt.Errorf("%s: line %d: answered by %s, before by %s", m.name, round, server, m.server)
	}
	m.server = server
	m.lines.Add(1)
	return nil
}

// speak has every member speak once.
func (c *connections) speak(t *testing.T) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(speaking)
	for _, m := range c.members {
		group.Go(m.speak)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// during has the members speak line after line while do does something, which
// may wait for some lines more.
func (c *connections) during(t *testing.T, do func(heard func())) {
	t.Helper()
	done, turns := make(chan struct{}), make(chan struct{}, speaking)
	errs := make(chan error, len(c.members))
	for _, m := range c.members {
		go func() { errs <- m.converse(done, turns) }()
	}
	do(func() { c.await(t) })
	close(done)
	var failed error
	for range c.members {
		failed = errors.Join(failed, <-errs)
	}
	if failed != nil {
		t.Fatal(failed)
	}
}

func (m *connection) converse(done <-chan struct{}, turns chan struct{}) error {
	ticker := time.NewTicker(harness.Pace)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-ticker.C:
		}
		turns <- struct{}{}
		err := m.speak()
		<-turns
		if err != nil {
			return err
		}
	}
}

// await waits until every member has had three more lines echoed.
func (c *connections) await(t *testing.T) {
	t.Helper()
	goal := make([]int64, len(c.members))
	for i, m := range c.members {
		goal[i] = m.lines.Load() + 3
	}
	for i, m := range c.members {
		if !await.Holds(func() bool { return m.lines.Load() >= goal[i] }) {
			t.Errorf("%s stands still after line %d", m.name, m.lines.Load())
			return
		}
	}
}

// byServer counts the connections of each server.
func (c *connections) byServer() map[string]int {
	counts := map[string]int{}
	for _, m := range c.members {
		counts[m.server]++
	}
	return counts
}
