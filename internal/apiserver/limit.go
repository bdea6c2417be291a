// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net"
	"net/http"
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

// charge counts events that have happened, for which later ones may have to wait.
func (l *limits) charge(key string, events int64, now time.Time) {
	l.of(key, now).ReserveN(now, int(min(events, int64(l.burst))))
}

// shares divides an amount among clients: each has at most as much as it leaves for others.
type shares struct {
	mu   sync.Mutex
	left int64
	of   map[string]int64
}

func newShares(all int64) *shares { return &shares{left: all, of: map[string]int64{}} }

// take reports whether a client gets n more. With a negative number it gives them back.
func (s *shares) take(client string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.of[client]+n > s.left-n {
		return false
	}
	s.left -= n
	if s.of[client] += n; s.of[client] == 0 {
		delete(s.of, client)
	}
	return true
}

const (
	// workMemory is the memory in bytes of all requests together, and maxWork the most for one: requests
	// that need more count as much.
	workMemory, maxWork = 192 << 20, workMemory / 4
	// workUnit is how many bytes count as another request for a client's rate.
	workUnit = 1 << 20
	// treeFactor, typedFactor and textFactor are how many bytes a request needs for each byte of an
	// object that is changed, read, or answered as it is stored.
	treeFactor, typedFactor, textFactor = 40, 10, 4
)

// hold has the call take memory for its body and n bytes. The error is an httpError.
func (c *call) hold(n int64) error {
	n = min(n+c.bodyCost, maxWork)
	if n <= c.held {
		return nil
	}
	if !c.server.memory.take(c.client.name, n-c.held) {
		p := newHTTPError(http.StatusTooManyRequests, "too many requests at once")
		p.retryAfter = storeRetry
		return p
	}
	c.server.requests.charge(c.client.name, (n-c.held)/workUnit, time.Now())
	c.held = n
	return nil
}

// work waits until the call may use a processor: small calls at once, so that they don't wait for
// others, and the rest on as many processors as there are.
func (c *call) work(ctx context.Context) error {
	if c.working || c.held < workUnit {
		return ctx.Err()
	}
	select {
	case c.server.workers <- struct{}{}:
		c.working = true
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rest ends the work of a call, which holds memory for n bytes from now on.
func (c *call) rest(n int64) {
	if c.working {
		<-c.server.workers
		c.working = false
	}
	if n < c.held {
		c.server.memory.take(c.client.name, n-c.held)
		c.held = n
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
