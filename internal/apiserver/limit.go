// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limits limits events of each key, for a bounded number of keys.
type limits struct {
	limit rate.Limit
	burst int
	// most is the largest number of keys with a limit of their own; others share one.
	most int

	mu     sync.Mutex
	own    map[string]*rate.Limiter
	shared *rate.Limiter
	// swept is when keys without recent events were last removed.
	swept time.Time
}

// sweepInterval is the shortest time between two sweeps, which look at all keys.
const sweepInterval = time.Second

func newLimits(perSecond float64, burst, most int) *limits {
	limit := rate.Limit(perSecond)
	return &limits{limit: limit, burst: burst, most: most, own: map[string]*rate.Limiter{}, shared: rate.NewLimiter(limit, burst)}
}

// take counts an event, and returns 0; or when the next one is allowed.
func (l *limits) take(key string, now time.Time) time.Duration {
	r := l.of(key, now).ReserveN(now, 1)
	delay := r.DelayFrom(now)
	if delay > 0 {
		r.CancelAt(now)
	}
	return delay
}

func (l *limits) of(key string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.own[key]; own != nil {
		return own
	}
	if len(l.own) >= l.most && now.Sub(l.swept) >= sweepInterval {
		l.swept = now
		for k, own := range l.own {
			if own.TokensAt(now) >= float64(l.burst) {
				delete(l.own, k)
			}
		}
	}
	if len(l.own) >= l.most {
		return l.shared
	}
	own := rate.NewLimiter(l.limit, l.burst)
	l.own[key] = own
	return own
}

// waits limits how many requests wait at once: one client leaves room for waits of others, and all
// together for requests that don't wait.
type waits struct {
	mu  sync.Mutex
	all int
	// of are the numbers of each client that has some.
	of map[string]int
}

const maxWaits, maxClientWaits = 32, 8

// begin reports whether another request of a client may wait. If so, end has to be called after that.
func (w *waits) begin(client string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= maxWaits || w.of[client] >= maxClientWaits {
		return false
	}
	w.all++
	w.of[client]++
	return true
}

func (w *waits) end(client string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.of[client]--; w.of[client] == 0 {
		delete(w.of, client)
	}
}

// clientKey returns the key of a client without credentials: its IPv4 address, or the /64 of its
// IPv6 address, within which it may choose any.
func clientKey(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address, 64).Masked().String()
}
