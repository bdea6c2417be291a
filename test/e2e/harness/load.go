// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/lab/netlab"
)

// Load is a wrk that runs in a client's namespace.
type Load struct{ wrk *netlab.Wrk }

// paced is a script for wrk: each connection waits for Pace before a request.
var paced = fmt.Sprintf("function delay() return %d end\n", Pace.Milliseconds())

// Load starts wrk with one thread and so many connections that each balancer
// and each server gets some. Each waits for Pace before a request.
func (l *Lab) Load(t *testing.T, client string, length time.Duration, args ...string) *Load {
	t.Helper()
	script := filepath.Join(t.TempDir(), "paced.lua")
	if err := os.WriteFile(script, []byte(paced), 0o600); err != nil {
		t.Fatal(err)
	}
	wrk, err := l.Wrk(t.Context(), client, length, append([]string{"-c", "64", "-s", script}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &Load{wrk}
}

// Wait returns how many requests were answered. wrk has to end well, which it
// also does when requests fail.
func (w *Load) Wait(t *testing.T) int {
	t.Helper()
	return w.Result(t).Requests
}

// Result waits for wrk's result, in which requests may have failed.
func (w *Load) Result(t *testing.T) netlab.WrkResult {
	t.Helper()
	result, err := w.wrk.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if result.Requests == 0 {
		t.Fatalf("no request was answered: %s", result)
	}
	return result
}

// WaitFlawless is Wait, and no request may have failed.
func (w *Load) WaitFlawless(t *testing.T) int {
	t.Helper()
	result := w.Result(t)
	if result.Broken()+result.NotOK > 0 {
		t.Errorf("requests failed: %s", result)
	}
	return result.Requests
}

// LoadLimit is the length of a load that ends earlier.
const LoadLimit = time.Minute

// End is waitFlawless of a load that has lasted long enough.
func (w *Load) End(t *testing.T) int {
	t.Helper()
	w.Interrupt(t)
	return w.WaitFlawless(t)
}

// Interrupt ends wrk, which then reports.
func (w *Load) Interrupt(t *testing.T) {
	t.Helper()
	if err := w.wrk.Interrupt(); err != nil {
		t.Fatalf("wrk: %v", err)
	}
}

// Origin returns the URL of a VIP's web service.
func Origin(vip string) string { return "http://" + net.JoinHostPort(vip, "80") + "/" }

// Get asks for / on a new connection and returns the name of the server that
// answers.
func (l *Lab) Get(ctx context.Context, client, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return l.Lab.Get(ctx, client, url)
}

// Gets counts the answers to so many requests by server. None may fail.
func (l *Lab) Gets(t *testing.T, client, url string, requests int) map[string]int {
	t.Helper()
	answers := map[string]int{}
	for range requests {
		name, err := l.Get(t.Context(), client, url)
		if err != nil {
			t.Fatalf("%s asks %s: %v", client, url, err)
		}
		answers[name]++
	}
	return answers
}

// Repeat has each step done again and again, with a pause, until end is called or the step
// fails, which fails the test. It returns how often steps were done.
func Repeat(t *testing.T, pause time.Duration, steps ...func() error) (end func() int) {
	t.Helper()
	done, count := make(chan struct{}), atomic.Int64{}
	var group sync.WaitGroup
	for _, step := range steps {
		group.Go(func() {
			for ticker := time.NewTicker(pause); ; {
				if err := step(); err != nil {
					t.Errorf("after %d: %v", count.Load(), err)
					return
				}
				count.Add(1)
				select {
				case <-done:
					return
				case <-ticker.C:
				}
			}
		})
	}
	end = sync.OnceValue(func() int {
		close(done)
		group.Wait()
		return int(count.Load())
	})
	t.Cleanup(func() { end() })
	return end
}

// AnswerTimeout is how long a request may take: a client's kernel repeats the first
// packet after 1, 3 and 7 s.
const AnswerTimeout = 15 * time.Second

// ErrClosed is the end of a connection by the server between two requests.
var ErrClosed = errors.New("closed by the server")

// Client is a connection to a web service that answers with its server's name.
type Client struct {
	net.Conn
	Answers *bufio.Reader
	// Server has answered the requests; empty before the first.
	Server string
}

// NewClient returns the client of a connection without requests.
func NewClient(conn net.Conn) *Client { return &Client{Conn: conn, Answers: bufio.NewReader(conn)} }

// OpenClients opens so many connections from the client, in turn over IPv4 and IPv6. They
// are closed when the test ends.
func (l *Lab) OpenClients(t *testing.T, count int) []*Client {
	t.Helper()
	all := make([]*Client, count)
	for i := range all {
		conn, err := l.Dial(t.Context(), "client", "tcp", net.JoinHostPort([]string{VIP4, VIP6}[i%2], "80"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		all[i] = NewClient(conn)
		if err := all[i].Query(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Query requests /, which the server of the first answer has to answer. The error is
// ErrClosed if the server closes the connection after that.
func (c *Client) Query() error {
	if err := c.SetDeadline(time.Now().Add(AnswerTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: fairlead\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.Answers, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	server := strings.TrimSpace(string(body))
	switch {
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("status %s", response.Status)
	case c.Server != "" && c.Server != server:
		return fmt.Errorf("answered by %s, before by %s", server, c.Server)
	}
	c.Server = server
	if response.Close {
		return ErrClosed
	}
	return nil
}
