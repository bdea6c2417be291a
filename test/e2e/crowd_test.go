// SPDX-License-Identifier: Apache-2.0

package e2e_test

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
)

// dialing is how many connections of a crowd are opened at a time.
const dialing = 32

// pace is how often each member of a crowd, and each visitor, speaks: hundreds of
// them are never silent, and leave processors to what is done to them.
const pace = 50 * time.Millisecond

// crowd is many TCP connections to the echo service of a VIP that are held open
// (netlab.Echo over TCP, at port 7).
type crowd struct{ members []*member }

// member is one connection. Each line is answered by the server that answered
// the first one.
type member struct {
	net.Conn
	name   string
	answer *bufio.Reader
	server string
	lines  atomic.Int64 // answered so far
}

// crowd opens connections from a host; each has a line echoed. They are closed
// when the test ends.
func (l *lab) crowd(t *testing.T, host, vip string, size int) *crowd {
	t.Helper()
	c := &crowd{members: make([]*member, size)}
	var group errgroup.Group
	group.SetLimit(dialing)
	for i := range c.members {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			conn, err := l.Dial(ctx, host, "tcp", net.JoinHostPort(vip, "7"))
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			c.members[i] = &member{Conn: conn, name: fmt.Sprintf("%s %s %d", host, vip, i), answer: bufio.NewReader(conn)}
			return c.members[i].speak()
		})
	}
	t.Cleanup(c.close)
	if err := group.Wait(); err != nil {
		t.Fatalf("%s: %s: %v", host, vip, err)
	}
	return c
}

func (c *crowd) close() {
	for _, m := range c.members {
		if m != nil {
			_ = m.Close()
		}
	}
}

// leave closes the connections of a server.
func (c *crowd) leave(server string) {
	c.members = slices.DeleteFunc(c.members, func(m *member) bool {
		if m.server != server {
			return false
		}
		_ = m.Close()
		return true
	})
}

// speak has a line echoed, each time of another length.
func (m *member) speak() error {
	round := m.lines.Load()
	line := fmt.Sprintf("%s, line %d %s\n", m.name, round, strings.Repeat("-", int(round*97%1300)))
	if err := m.SetDeadline(time.Now().Add(patience)); err != nil {
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

// speak has every member speak once, all at the same time.
func (c *crowd) speak(t *testing.T) {
	t.Helper()
	var group errgroup.Group
	for _, m := range c.members {
		group.Go(m.speak)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// during has the members speak line after line while do does something, which
// may wait for some lines more.
func (c *crowd) during(t *testing.T, do func(heard func())) {
	t.Helper()
	done := make(chan struct{})
	errs := make(chan error, len(c.members))
	for _, m := range c.members {
		go func() { errs <- m.converse(done) }()
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

func (m *member) converse(done <-chan struct{}) error {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-ticker.C:
		}
		if err := m.speak(); err != nil {
			return err
		}
	}
}

// await waits until every member has had three more lines echoed.
func (c *crowd) await(t *testing.T) {
	t.Helper()
	goal := make([]int64, len(c.members))
	for i, m := range c.members {
		goal[i] = m.lines.Load() + 3
	}
	for i, m := range c.members {
		if !within(patience, func() bool { return m.lines.Load() >= goal[i] }) {
			t.Errorf("%s stands still after line %d", m.name, m.lines.Load())
			return
		}
	}
}

// byServer counts the connections of each server.
func (c *crowd) byServer() map[string]int {
	counts := map[string]int{}
	for _, m := range c.members {
		counts[m.server]++
	}
	return counts
}
