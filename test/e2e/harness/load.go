// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Load is a wrk that runs in a client's namespace.
type Load struct {
	cmd    *exec.Cmd
	output bytes.Buffer
}

// Load starts wrk with one thread and so many connections that each balancer
// and each server gets some.
func (l *Lab) Load(t *testing.T, client string, length time.Duration, args ...string) *Load {
	t.Helper()
	w := &Load{}
	w.cmd = exec.CommandContext(t.Context(), "wrk", append([]string{"-t", "1", "-c", "64", "-d", fmt.Sprintf("%.0fs", length.Seconds())}, args...)...)
	w.cmd.Stdout, w.cmd.Stderr = &w.output, &w.output
	if err := l.Do(client, w.cmd.Start); err != nil {
		t.Fatalf("wrk: %v", err)
	}
	return w
}

var wrkRequests = regexp.MustCompile(`(?m)^\s*(\d+) requests in `)

// Wait returns how many requests were answered. wrk has to end well, which it
// also does when requests fail.
func (w *Load) Wait(t *testing.T) int {
	t.Helper()
	if err := w.cmd.Wait(); err != nil {
		t.Fatalf("wrk: %v: %s", err, &w.output)
	}
	match := wrkRequests.FindStringSubmatch(w.output.String())
	if match == nil {
		t.Fatalf("wrk said nothing of its requests: %s", &w.output)
	}
	requests, err := strconv.Atoi(match[1])
	if err != nil || requests == 0 {
		t.Fatalf("no request was answered: %s", &w.output)
	}
	return requests
}

// WaitFlawless is wait, and no request may have failed.
func (w *Load) WaitFlawless(t *testing.T) int {
	t.Helper()
	requests := w.Wait(t)
	for _, flaw := range []string{"Socket errors", "Non-2xx"} {
		if strings.Contains(w.output.String(), flaw) {
			t.Errorf("requests failed: %s", &w.output)
		}
	}
	return requests
}

// LoadLimit is the length of a load that ends earlier.
const LoadLimit = time.Minute

// End is waitFlawless of a load that has lasted long enough.
func (w *Load) End(t *testing.T) int {
	t.Helper()
	w.Interrupt(t)
	return w.WaitFlawless(t)
}

// Interrupt has wrk end now and say what it has done.
func (w *Load) Interrupt(t *testing.T) {
	t.Helper()
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatalf("wrk: %v: %s", err, &w.output)
	}
}

// Origin returns the URL of a VIP's web service.
func Origin(vip string) string { return "http://" + net.JoinHostPort(vip, "80") + "/" }

// Get asks for / on a new connection and returns the name of the server that
// answers.
func (l *Lab) Get(ctx context.Context, client, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	browser := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return l.Dial(ctx, client, network, address)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := browser.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %s", response.Status)
	}
	body, err := io.ReadAll(response.Body)
	return strings.TrimSpace(string(body)), err
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
