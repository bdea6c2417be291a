// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// stalling answers requests with a size, one after the other, and stalls once for a second when
// it has answered a number of them.
func stalling(t *testing.T, size, after int) func() (net.Conn, error) {
	t.Helper()
	var mu sync.Mutex
	answered := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if answered++; answered == after {
			<-time.After(time.Second)
		}
		_, _ = w.Write([]byte(strings.Repeat("x", size)))
	}))
	t.Cleanup(server.Close)
	return func() (net.Conn, error) { return net.Dial("tcp", server.Listener.Addr().String()) }
}

// A stall of a second delays all requests that were to be sent in it, half of two seconds' requests,
// though a client that waits for answers would have sent few.
func TestStall(t *testing.T) {
	const rate, length = 640, 2 * time.Second
	c, err := open(t.Context(), small, length, stalling(t, small, 200))
	if err != nil {
		t.Fatal(err)
	}
	latencies, err := c.send(rate, length)
	if err != nil {
		t.Fatal(err)
	}
	if len(latencies) != rate*2 {
		t.Errorf("%d latencies, want %d", len(latencies), rate*2)
	}
	for p, least := range map[float64]float64{99: 900, 75: 400} {
		if found := latencies.Percentile(p); found < least {
			t.Errorf("percentile %g is %.1f ms, want at least %g", p, found, least)
		}
	}
}

// A client that waits for answers sends few requests to a server that stalls.
func TestMost(t *testing.T) {
	const connections = 64
	c, err := open(t.Context(), small, time.Second, stalling(t, small, connections+1))
	if err != nil {
		t.Fatal(err)
	}
	if most, err := c.most(time.Second / 2); err != nil || most <= 0 || most > 2*connections {
		t.Errorf("%.0f requests a second, %v; want at most one on each connection in half a second", most, err)
	}
}

// A server that answers otherwise is an error, as is the end of the bench.
func TestBadAnswer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	dial := func() (net.Conn, error) { return net.Dial("tcp", server.Listener.Addr().String()) }
	if _, err := open(t.Context(), 1, time.Second, dial); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("error %v, want the status", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := open(ctx, small, time.Second, stalling(t, small, 0))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := c.send(1000, time.Second); err == nil {
		t.Error("no error after the end")
	}
}
