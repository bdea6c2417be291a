// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
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

// load is a wrk that runs in a client's namespace.
type load struct {
	cmd    *exec.Cmd
	output bytes.Buffer
}

// load starts wrk with one thread and so many connections that each balancer
// and each server gets some.
func (l *lab) load(t *testing.T, client string, length time.Duration, args ...string) *load {
	t.Helper()
	w := &load{}
	w.cmd = exec.CommandContext(t.Context(), "wrk", append([]string{"-t", "1", "-c", "64", "-d", fmt.Sprintf("%.0fs", length.Seconds())}, args...)...)
	w.cmd.Stdout, w.cmd.Stderr = &w.output, &w.output
	if err := l.Do(client, w.cmd.Start); err != nil {
		t.Fatalf("wrk: %v", err)
	}
	return w
}

var wrkRequests = regexp.MustCompile(`(?m)^\s*(\d+) requests in `)

// wait returns how many requests were answered. wrk has to end well, which it
// also does when requests fail.
func (w *load) wait(t *testing.T) int {
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

// waitFlawless is wait, and no request may have failed.
func (w *load) waitFlawless(t *testing.T) int {
	t.Helper()
	requests := w.wait(t)
	for _, flaw := range []string{"Socket errors", "Non-2xx"} {
		if strings.Contains(w.output.String(), flaw) {
			t.Errorf("requests failed: %s", &w.output)
		}
	}
	return requests
}

// loadLimit is the length of a load that ends earlier.
const loadLimit = time.Minute

// end is waitFlawless of a load that has lasted long enough.
func (w *load) end(t *testing.T) int {
	t.Helper()
	w.interrupt(t)
	return w.waitFlawless(t)
}

// interrupt has wrk end now and say what it has done.
func (w *load) interrupt(t *testing.T) {
	t.Helper()
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatalf("wrk: %v: %s", err, &w.output)
	}
}

// origin returns the URL of a VIP's web service.
func origin(vip string) string { return "http://" + net.JoinHostPort(vip, "80") + "/" }

// get asks for / on a new connection and returns the name of the server that
// answers.
func (l *lab) get(ctx context.Context, client, url string) (string, error) {
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

// gets counts the answers to so many requests by server. None may fail.
func (l *lab) gets(t *testing.T, client, url string, requests int) map[string]int {
	t.Helper()
	answers := map[string]int{}
	for range requests {
		name, err := l.get(t.Context(), client, url)
		if err != nil {
			t.Fatalf("%s asks %s: %v", client, url, err)
		}
		answers[name]++
	}
	return answers
}
