// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
	"fairlead.io/fairlead/internal/bgp/session"
	"fairlead.io/fairlead/test/fake"
	"fairlead.io/fairlead/test/fuzzrand"
)

// dialWait is how long a router that doesn't reply delays an attempt in the model.
const dialWait = 4 * time.Second

// history is a peer whose router, connections and time are the test's, with a model of its sessions (RFC 4271 §8, RFC 4724).
type history struct {
	t      *testing.T
	random *rand.Rand
	config bgp.Peer
	peer   *peer
	trace  []string
	steps  int

	mu      sync.Mutex // guards the fields that other goroutines write: these, and the received messages of links
	refuses bool       // the router refuses connections
	mute    bool       // the router doesn't reply to them
	dials   []dial

	// current is the link of the session, next the link of the one after it, and contender one that may replace it.
	current, next, contender *link
	// earliest and latest are when the next attempt is due.
	earliest, latest time.Time
	dialling         time.Time // until when the last attempt lasts
	connected        *link     // its link, over which a session begins then
	byBFD            bool      // BFD ended the last session of a peer that dials
	restored         bool      // BFD is up again once a connection is made
	failures         int
	restarted        bool // no session was established yet
	flaps, sessions  uint64
	wanted           map[netip.Prefix]uint32
	// routes are the router's, the stale ones until stale.
	routes map[netip.Prefix]learned
	stale  time.Time
}

// dial is an attempt to connect; link is nil if the router refused it, or didn't reply.
type dial struct {
	at   time.Time
	mute bool
	link *link
}

// Sessions of random histories keep to a model: states, NOTIFICATIONs, the router's routes, intervals of KEEPALIVEs and of
// attempts. All goroutines end.
func TestPeerHistories(t *testing.T) {
	seed, long, began := fuzzrand.Seed(t), fuzzrand.Duration(t, 5*time.Second), time.Now()
	histories, steps, sessions, simulated := 0, 0, uint64(0), time.Duration(0)
	for ; time.Since(began) < long; histories++ {
		synctest.Test(t, func(t *testing.T) {
			h := newHistory(t, rand.New(rand.NewPCG(seed, uint64(histories))))
			began := time.Now()
			h.run()
			steps, sessions, simulated = steps+h.steps, sessions+h.sessions, simulated+time.Since(began)
			if t.Failed() {
				t.Logf("history %d of %+v", histories, h.config)
				for _, line := range h.trace {
					t.Log(line)
				}
			}
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	if sessions < uint64(histories)/2 {
		t.Errorf("%d sessions in %d histories: too few", sessions, histories)
	}
	t.Logf("%d sessions in %s", sessions, simulated.Round(time.Second))
	fuzzrand.Covered(t, histories, steps)
}

func newHistory(t *testing.T, random *rand.Rand) *history {
	h := &history{t: t, random: random, config: router(netip.MustParseAddr("127.0.0.9"), 65000), routes: make(map[netip.Prefix]learned)}
	h.config.Passive = random.IntN(3) == 0
	h.config.HoldTime = []time.Duration{0, 3, 9, 30, 90}[random.IntN(5)] * time.Second
	h.config.RestartTime = []time.Duration{0, 60}[random.IntN(2)] * time.Second
	if random.IntN(2) == 0 {
		h.config.BFD = &bgp.DefaultBFD
	}
	h.start()
	t.Cleanup(func() {
		h.peer.Stop(session.Notification{})
		for _, l := range []*link{h.current, h.next, h.contender} {
			if l != nil {
				_ = l.conn.Close()
			}
		}
	})
	return h
}

// start starts the agent.
func (h *history) start() {
	h.failures, h.restarted, h.flaps = 0, true, 0
	h.peer = startPeer(bgp.Local{ASN: 65021, RouterID: balancer4}, h.config, h.dial, func() {}, slog.New(slog.DiscardHandler))
	h.earliest = time.Now()
	if h.config.BFD != nil {
		h.earliest = h.earliest.Add(bfd.PassiveHold(*h.config.BFD))
	}
	h.latest, h.dialling, h.connected, h.byBFD = h.earliest, time.Time{}, nil, false
	h.set()
}

func (h *history) run() {
	h.settle()
	for range 5 + h.random.IntN(25) {
		h.steps++
		h.trace = append(h.trace, fmt.Sprint(time.Now().Format("15:04:05.000000 "), h.step()))
		h.settle()
		h.advance(h.pause())
		if h.t.Failed() {
			return
		}
	}
	h.finish()
}

// pause is the time until the next event.
func (h *history) pause() time.Duration {
	longest := []time.Duration{1, 50 * time.Millisecond, 2 * time.Second, 12 * time.Second, 3*h.config.HoldTime + 1}
	return time.Duration(h.random.Int64N(int64(longest[h.random.IntN(len(longest))])))
}

// advance lets time pass, in which the router sends KEEPALIVEs.
func (h *history) advance(d time.Duration) {
	for until := time.Now().Add(d); ; {
		next, l := until, h.current
		sends := l != nil && l.state == bgp.Established && l.hold > 0 && !l.silent && l.nextAlive.Before(until)
		if sends {
			next = l.nextAlive
		}
		time.Sleep(time.Until(next))
		h.settle()
		if !sends || h.t.Failed() {
			return
		}
		if l == h.current {
			h.keepalive(l)
			h.settle()
		}
	}
}

// settle waits until the speaker waits, and checks all that has happened.
func (h *history) settle() {
	h.t.Helper()
	h.settleWith(h.checkState)
}

func (h *history) settleWith(checkState func(time.Time)) {
	h.t.Helper()
	synctest.Wait()
	h.resume()
	h.judge()
	h.mu.Lock()
	dials := h.dials
	h.dials = nil
	h.mu.Unlock()
	for _, d := range dials {
		h.dialled(d)
		h.judge()
	}
	now := time.Now()
	if !now.Before(h.stale) {
		maps.DeleteFunc(h.routes, func(_ netip.Prefix, r learned) bool { return r.stale })
	}
	if h.current != nil {
		h.check(h.current)
	}
	checkState(now)
}

// checkState compares the peer's state with the model's.
func (h *history) checkState(now time.Time) {
	state := h.peer.State()
	want := []bgp.SessionState{bgp.Idle, bgp.Connect, bgp.Active}
	switch {
	case h.current != nil:
		want = []bgp.SessionState{h.current.state}
	case now.Before(h.dialling):
		want = want[1:2]
	case now.Before(h.earliest):
		want = want[:1]
	case now.After(h.latest) && h.config.Passive && h.next == nil:
		want = want[2:]
	case now.After(h.latest):
		h.t.Errorf("no attempt since %s", now.Sub(h.latest))
	}
	if !slices.Contains(want, state.State) || state.Flaps != h.flaps {
		h.t.Errorf("%s after %d sessions, want %s after %d: %s", state.State, state.Flaps, want, h.flaps, state.Reason)
	}
}

// dial is the dialer of the peer.
func (h *history) dial(ctx context.Context, _ bgp.Local, _ *bgp.Peer) (session.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mute {
		h.dials = append(h.dials, dial{at: time.Now(), mute: true})
		h.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(dialWait):
		}
		h.mu.Lock()
		return nil, errors.New("timed out")
	}
	if h.refuses {
		h.dials = append(h.dials, dial{at: time.Now()})
		return nil, unix.ECONNREFUSED
	}
	l, conn := h.connect()
	if h.byBFD && h.restored {
		h.peer.BFDChanged(bfd.Event{Peer: h.config.Address, At: time.Now(), Old: bgp.BFDInit, New: bgp.BFDUp})
	}
	h.dials = append(h.dials, dial{at: time.Now(), link: l})
	return conn, nil
}

// connect makes a connection, and returns the router's end and the speaker's.
func (h *history) connect() (*link, *fake.Conn) {
	ours, theirs := fake.Connect(netip.AddrPortFrom(balancer4, 1024), netip.AddrPortFrom(h.config.Address, bgp.Port))
	l := &link{conn: theirs, ends: make(map[bool]int), asked: make(map[bool]time.Time), vain: make(map[bool]bool)}
	go h.read(l)
	return l, ours
}

// dialled checks when an attempt was made.
func (h *history) dialled(d dial) {
	if h.current != nil || d.at.Before(h.earliest) || d.at.After(h.latest) {
		h.t.Errorf("dials %s after the earliest time and %s after the latest, after %d failures", d.at.Sub(h.earliest), d.at.Sub(h.latest), h.failures)
	}
	switch {
	case d.mute:
		h.dialling = d.at.Add(dialWait)
		h.failed(h.dialling, 0)
	case d.link == nil:
		h.failed(d.at, 0)
	case h.byBFD:
		h.waits(d)
	default:
		h.begins(d.link, d.at)
	}
}

// waits notes that BFD has to be up, for a moment or at most for a second, before a session begins.
func (h *history) waits(d dial) {
	wait := time.Second
	if h.restored {
		wait = 200 * time.Millisecond
	}
	h.byBFD, h.connected, h.dialling = false, d.link, d.at.Add(wait)
	h.latest = h.dialling
	h.resume()
}

// resume begins the session that BFD delayed, once it is time.
func (h *history) resume() {
	if l := h.connected; l != nil && !time.Now().Before(h.dialling) {
		h.connected = nil
		h.begins(l, h.dialling)
	}
}

// failed notes an attempt that failed, or a session that ended: the next attempt is due after 0.1 s, doubled with each
// failure up to 5 s, less a quarter at most.
func (h *history) failed(at time.Time, lived time.Duration) {
	if h.failures++; lived >= 10*time.Second {
		h.failures = 1
	}
	delay := min(100*time.Millisecond<<min(h.failures-1, 10), 5*time.Second)
	h.earliest, h.latest = at.Add(delay-delay/4), at.Add(delay)
}

// begins notes that a session begins over a link.
func (h *history) begins(l *link, at time.Time) {
	l.state, l.deadline = bgp.OpenSent, at.Add(openWait)
	if l == h.next {
		if at.Before(h.earliest) || at.After(h.latest) {
			h.t.Errorf("takes the connection %s after the latest time", at.Sub(h.latest))
		}
		h.next = nil
		h.opens(l, at)
	}
	h.current = l
}

// opens notes that the speaker has accepted the router's OPEN.
func (h *history) opens(l *link, at time.Time) {
	l.state, l.deadline = bgp.OpenConfirm, at.Add(openWait)
	l.hold = min(h.config.HoldTime, time.Duration(l.open.hold)*time.Second)
}

// ended notes the end of a connection.
func (h *history) ended(l *link, at time.Time) {
	if !l.closing {
		h.t.Errorf("connection closed in %s without a NOTIFICATION, want %v", l.state, l.want)
	}
	if l == h.contender {
		h.contender = nil
	}
	if l == h.next {
		h.next = nil
	}
	if l != h.current {
		return
	}
	h.current = nil
	lived, graceful := time.Duration(0), l.open.graceful && h.config.RestartTime > 0
	if l.state == bgp.Established {
		h.flaps++
		h.sessions++
		lived = at.Sub(l.established)
		h.restarted = h.restarted && lived == 0
		for prefix, r := range h.routes {
			h.routes[prefix] = learned{r.med, true}
		}
		if h.stale = at; graceful {
			h.stale = at.Add(h.config.RestartTime)
		}
	}
	h.failed(at, lived)
	if h.contender != nil { // the connection that had to wait replaces it
		h.contender.want = nil
		h.next, h.contender = h.contender, nil
	}
}
