// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/reflector"
)

// A reflector that is closed while it doesn't know yet that its session with a
// router is established takes nothing back: the library has told the router all by
// then.
func TestClosedBeforeItKnowsOfASession(t *testing.T) {
	needsRoot(t)
	listener, err := net.Listen("tcp4", net.JoinHostPort(routerAddress.String(), "179"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	late := &holding{Handler: slog.DiscardHandler, word: "session established", held: make(chan struct{}), release: make(chan struct{})}
	r, err := reflector.Start(t.Context(), settings(), reflector.Options{Log: slog.New(late)})
	if err != nil {
		t.Fatal(err)
	}
	closed := sync.OnceFunc(r.Close)
	t.Cleanup(closed)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	router := &client{t: t, n: 1, conn: conn, ended: make(chan struct{}), updates: make(chan []byte, 100)}
	await(t, "connection with the router", func() bool { p, _ := state(r, routerAddress); return p.State == bgp.OpenSent })
	go router.listen()
	for n := 11; n <= 18; n++ {
		connect(t, n, restarting).announce(vip4)
		await(t, "session", func() bool { return established(r, clientAddress(n)) })
	}

	// One more client's session holds up what the reflector hears of sessions.
	late.armed.Store(true)
	connect(t, 19, restarting)
	<-late.held
	router.send(open, router.open(restarting))
	router.send(keepalive, nil)
	router.awaitAll()
	time.AfterFunc(20*time.Millisecond, func() { close(late.release) }) // Close waits by then
	closed()
	router.awaitEnd()
	for len(router.updates) > 0 {
		if u := <-router.updates; withdraws(u) {
			t.Errorf("the router is told % x", u)
		}
	}
}

// awaitAll waits until it has been told all IPv4 routes.
func (c *client) awaitAll() {
	c.t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case u := <-c.updates:
			if bytes.Equal(u, endOfRIB4) {
				return
			}
		case <-late:
			c.t.Fatal("not told all within 20 s")
		}
	}
}

// withdraws reports whether an UPDATE takes IPv4 routes back (RFC 4271 §4.3).
func withdraws(update []byte) bool { return update[0] != 0 || update[1] != 0 }

// holding is a log that holds up, when armed, whoever first says a word.
type holding struct {
	slog.Handler
	armed         atomic.Bool
	word          string
	once          sync.Once
	held, release chan struct{}
}

func (h *holding) Enabled(context.Context, slog.Level) bool { return true }

func (h *holding) Handle(_ context.Context, r slog.Record) error {
	if h.armed.Load() && r.Message == h.word {
		h.once.Do(func() {
			close(h.held)
			<-h.release
		})
	}
	return nil
}

func (h *holding) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *holding) WithGroup(string) slog.Handler      { return h }
