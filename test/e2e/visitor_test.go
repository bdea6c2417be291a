// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// visitor is a connection to the web service that is kept open.
type visitor struct {
	net.Conn
	answers *bufio.Reader
	// server has answered its first request.
	server string
}

// visitors opens so many connections from the client. They are closed when the
// test ends.
func (l *lab) visitors(t *testing.T, count int) []*visitor {
	t.Helper()
	all := make([]*visitor, count)
	for i := range all {
		conn, err := l.Dial(t.Context(), "client", "tcp", net.JoinHostPort([]string{vip4, vip6}[i%2], "80"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		b := &visitor{Conn: conn, answers: bufio.NewReader(conn)}
		if b.server, err = b.ask(); err != nil {
			t.Fatal(err)
		}
		all[i] = b
	}
	return all
}

// keepVisiting has visitors ask all the time, on connections that last and on new
// ones, without filling the machine. What it returns ends that, and returns how
// many requests were answered; each that wasn't is an error.
func (l *lab) keepVisiting(t *testing.T) (end func() int) {
	t.Helper()
	done, answered, asking := make(chan struct{}), atomic.Int64{}, sync.WaitGroup{}
	visit := func(ask func() (string, error)) {
		asking.Go(func() {
			for ticker := time.NewTicker(pace); ; {
				select {
				case <-done:
					return
				case <-ticker.C:
				}
				if _, err := ask(); err != nil {
					t.Errorf("after %d answers: %v", answered.Load(), err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for _, v := range l.visitors(t, 24) {
		visit(v.ask)
	}
	visit(func() (string, error) { return l.get(t.Context(), "client", origin(vip4)) })
	stop := sync.OnceFunc(func() { close(done); asking.Wait() })
	t.Cleanup(stop)
	return func() int { stop(); return int(answered.Load()) }
}

// ask asks for / and returns the name of the server that answers.
func (b *visitor) ask() (server string, err error) {
	if err := b.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(b, "GET / HTTP/1.1\r\nHost: fairlead\r\n\r\n"); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(b.answers, nil)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return strings.TrimSpace(string(body)), err
}
