// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/fake"
	"fairlead.io/fairlead/test/fuzzrand"
)

// The types of messages (RFC 4271 §4.1).
const (
	typeOpen = iota + 1
	typeUpdate
	typeNotification
	typeKeepalive
)

// clientHistory is a reflector whose client is the test, with a model of the client's routes as RFC 4724 §4.2 has a peer keep
// them.
type clientHistory struct {
	t      *testing.T
	random *rand.Rand
	*Reflector
	trace []string

	conn        *fake.Conn // nil without a session
	established bool
	graceful    bool
	restartTime time.Duration
	deadline    time.Time // of the hold timer
	routes      map[netip.Prefix]kept
	expiry      time.Time // of the stale routes; zero for none
}

// kept is a route that the reflector is to have.
type kept struct {
	med   uint32
	stale bool
}

const (
	historyHold    = 9 * time.Second
	historyRestart = 20 * time.Second // of the configuration
)

var historyClient = netip.MustParseAddr("198.51.100.1")

// The routes of a client are reflected as long as its session lives. If it is lost, they are kept, as stale ones, for the
// restart time, until it has announced all routes of their family again, or until it comes back without having preserved them.
func TestClientHistories(t *testing.T) {
	seed, long, began := fuzzrand.Seed(t), fuzzrand.Duration(t, 5*time.Second), time.Now()
	histories, steps, stale := 0, 0, 0
	for ; time.Since(began) < long; histories++ {
		synctest.Test(t, func(t *testing.T) {
			h := newClientHistory(t, rand.New(rand.NewPCG(seed, uint64(histories))))
			defer h.Close()
			for range 5 + h.random.IntN(35) {
				steps++
				h.trace = append(h.trace, fmt.Sprint(time.Now().Format("15:04:05.000000 "), h.step()))
				h.check()
				h.advance()
				if !h.expiry.IsZero() {
					stale++
				}
				if t.Failed() {
					break
				}
			}
			if t.Failed() {
				t.Logf("history %d", histories)
				for _, line := range h.trace {
					t.Log(line)
				}
			}
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	if stale < histories/4 {
		t.Errorf("%d steps with stale routes in %d histories: too few", stale, histories)
	}
	fuzzrand.Covered(t, histories, steps)
}

func newClientHistory(t *testing.T, random *rand.Rand) *clientHistory {
	all := []bgp.Acceptance{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}, {Prefix: netip.MustParsePrefix("fd00::/16")}}
	r, err := Start(t.Context(), bgp.Reflection{
		Local: bgp.Local{ASN: 65021, RouterID: netip.MustParseAddr("192.0.2.1")}, ClusterID: netip.MustParseAddr("192.0.2.1"),
		Clients: []bgp.Range{{
			Prefix: netip.MustParsePrefix("198.51.100.0/24"), MaxClients: 1,
			Peer: bgp.Peer{ASN: 65021, HoldTime: historyHold, RestartTime: historyRestart},
		}},
		Accept: all, NextHops: []netip.Prefix{netip.MustParsePrefix("10.0.2.0/24"), netip.MustParsePrefix("fd00:2::/64")},
		Allowed: bgp.Attributes{MED: new(uint32(0))},
	}, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &clientHistory{t: t, random: random, Reflector: r, routes: make(map[netip.Prefix]kept)}
}

// step is a random event. It returns a description.
func (h *clientHistory) step() string {
	n := h.random.IntN(20)
	switch {
	case h.conn == nil || n == 0:
		return h.connect()
	case !h.established && n < 15:
		h.send(typeKeepalive)
		h.established = true
		h.restartHoldTimer()
		return "KEEPALIVE"
	case n < 3:
		_ = h.conn.Close()
		h.ended(true)
		return "connection lost"
	case n < 4:
		h.send(typeNotification, 6, 4)
		h.ended(false)
		return "NOTIFICATION"
	case n < 5:
		h.send(77)
		h.ended(false)
		return "malformed message"
	case !h.established:
		return "nothing"
	case n < 7:
		return h.endOfRIB()
	case n < 9:
		h.send(typeKeepalive)
		h.restartHoldTimer()
		return "KEEPALIVE"
	}
	return h.update()
}

// connect connects as the client, instead of a session that there may be, and sends an OPEN.
func (h *clientHistory) connect() string {
	if h.conn != nil {
		if replaced := h.established && h.graceful && h.random.IntN(2) == 0; replaced {
			h.restartTime = time.Hour // as no time passes until the next OPEN
		} else {
			_ = h.conn.Close()
			synctest.Wait()
		}
		h.ended(true)
	}
	there, here := netip.AddrPortFrom(historyClient, 1024), netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), bgp.Port)
	ours, theirs := fake.Connect(here, there)
	h.conn, h.established = theirs, false
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	h.accept(ours)
	h.graceful, h.restartTime = h.random.IntN(4) > 0, time.Duration(h.random.IntN(3)*5)*time.Second
	capabilities := []byte{65, 4, 0, 0, 0xfd, 0xfd, 1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 0, 1}
	preserved := map[bool]bool{}
	if h.graceful {
		capabilities = append(capabilities, 64, 10, 0, byte(h.restartTime/time.Second))
		for _, six := range []bool{false, true} {
			afi, flags := byte(1), byte(0)
			if six {
				afi = 2
			}
			if preserved[six] = h.random.IntN(3) > 0; preserved[six] {
				flags = 0x80
			}
			capabilities = append(capabilities, 0, afi, 1, flags)
		}
	}
	body := slices.Concat([]byte{4, 0xfd, 0xfd, 0, 180, 198, 51, 100, 1, byte(len(capabilities) + 2), 2, byte(len(capabilities))}, capabilities)
	h.send(typeOpen, body...)
	h.deadline = time.Now().Add(10 * time.Second)
	maps.DeleteFunc(h.routes, func(p netip.Prefix, _ kept) bool { return !preserved[p.Addr().Is6()] })
	h.expiry = time.Time{}
	if len(h.routes) > 0 {
		h.expiry = time.Now().Add(historyRestart)
	}
	return fmt.Sprintf("OPEN: graceful restart %t of %s, preserved %v", h.graceful, h.restartTime, preserved)
}

// send sends a message.
func (h *clientHistory) send(kind byte, body ...byte) {
	m := binary.BigEndian.AppendUint16(bytes.Repeat([]byte{0xff}, 16), uint16(19+len(body)))
	if _, err := h.conn.Write(append(append(m, kind), body...)); err != nil {
		h.t.Fatal(err)
	}
}

// restartHoldTimer restarts the hold timer.
func (h *clientHistory) restartHoldTimer() { h.deadline = time.Now().Add(historyHold) }

// ended notes the end of the session. If its connection was lost, its routes become stale.
func (h *clientHistory) ended(lost bool) {
	if was := h.established; was || h.expiry.IsZero() {
		h.expiry = time.Time{}
		if lost && was && h.graceful && h.restartTime > 0 {
			h.expiry = time.Now().Add(h.restartTime)
		} else {
			clear(h.routes)
		}
	}
	for prefix, route := range h.routes {
		h.routes[prefix] = kept{route.med, true}
	}
	h.conn, h.established = nil, false
}

// endOfRIB ends the announcements of a family: stale routes of it are removed (RFC 4724 §4.2).
func (h *clientHistory) endOfRIB() string {
	six := h.random.IntN(2) == 0
	body := []byte{0, 0, 0, 0}
	if six {
		body = []byte{0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1}
	}
	h.send(typeUpdate, body...)
	h.restartHoldTimer()
	maps.DeleteFunc(h.routes, func(p netip.Prefix, r kept) bool { return r.stale && p.Addr().Is6() == six })
	return fmt.Sprintf("End-of-RIB, of IPv6 %t", six)
}

// update announces or withdraws a random route.
func (h *clientHistory) update() string {
	prefix := netip.MustParsePrefix([]string{"10.1.1.1/32", "10.1.1.2/32", "fd00:1::1/128", "fd00:1::2/128"}[h.random.IntN(4)])
	nlri := append([]byte{byte(prefix.Bits())}, prefix.Addr().AsSlice()...)
	withdraws, med, six := h.random.IntN(3) == 0, byte(h.random.IntN(3)), prefix.Addr().Is6()
	attributes := []byte{0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 5, 4, 0, 0, 0, 100, 0x80, 4, 4, 0, 0, 0, med}
	var withdrawn []byte
	switch {
	case withdraws && six:
		attributes, nlri = slices.Concat([]byte{0x80, 15, byte(3 + len(nlri)), 0, 2, 1}, nlri), nil
	case withdraws:
		attributes, withdrawn, nlri = nil, nlri, nil
	case six:
		hop := netip.MustParseAddr("fd00:2::11").AsSlice()
		attributes = slices.Concat([]byte{0x80, 14, byte(21 + len(nlri)), 0, 2, 1, 16}, hop, []byte{0}, nlri, attributes)
		nlri = nil
	default:
		attributes = append(attributes, 0x40, 3, 4, 10, 0, 2, 11)
	}
	body := binary.BigEndian.AppendUint16(nil, uint16(len(withdrawn)))
	body = binary.BigEndian.AppendUint16(append(body, withdrawn...), uint16(len(attributes)))
	h.send(typeUpdate, slices.Concat(body, attributes, nlri)...)
	h.restartHoldTimer()
	if withdraws {
		delete(h.routes, prefix)
		return "withdraws " + prefix.String()
	}
	h.routes[prefix] = kept{med: uint32(med)}
	return fmt.Sprintf("announces %s with MED %d", prefix, med)
}

// advance lets time pass: the hold timer may expire, and stale routes do.
func (h *clientHistory) advance() {
	longest := []time.Duration{1, time.Second, 5 * time.Second, historyHold, 2 * historyRestart}[h.random.IntN(5)]
	time.Sleep(time.Duration(h.random.Int64N(int64(longest))))
	now := time.Now()
	const grace = 100 * time.Millisecond
	if h.conn != nil && now.Sub(h.deadline) <= grace && now.After(h.deadline) { // no event while the timer expires
		time.Sleep(grace)
		now = time.Now()
	}
	if h.conn != nil && now.After(h.deadline) {
		h.ended(false)
	}
	if !h.expiry.IsZero() && !now.Before(h.expiry) {
		h.expiry = time.Time{}
		maps.DeleteFunc(h.routes, func(_ netip.Prefix, r kept) bool { return r.stale })
	}
	h.check()
}

// check compares the reflected routes with the model's.
func (h *clientHistory) check() {
	h.t.Helper()
	synctest.Wait()
	got := make(map[netip.Prefix]kept)
	for _, route := range h.Routes() {
		got[route.Prefix] = kept{*route.Attributes.MED, len(route.Stale) > 0}
	}
	if !maps.Equal(got, h.routes) {
		h.t.Errorf("reflects %v, want %v", got, h.routes)
	}
	if p := slices.IndexFunc(h.Peers(), func(p bgp.PeerState) bool { return p.State == bgp.Established }); (p >= 0) != h.established {
		h.t.Errorf("established %t, want %t", p >= 0, h.established)
	}
}
