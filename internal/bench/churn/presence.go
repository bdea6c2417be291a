// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"sync"
	"time"
)

// presence knows since when servers have been in the configuration of one
// service without a break. It may be used by several goroutines.
type presence struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// newPresence knows servers that have always been there.
func newPresence(servers []string) *presence {
	p := &presence{since: map[string]time.Time{}}
	for _, s := range servers {
		p.since[s] = time.Time{}
	}
	return p
}

// leave is called before the first balancer is told that the server is gone.
func (p *presence) leave(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.since, server)
}

// arrive is called after the last balancer knows that the server is there.
func (p *presence) arrive(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since[server] = time.Now()
}

// lasted reports whether the server has been there since then, in use or
// drained.
func (p *presence) lasted(server string, then time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, there := p.since[server]
	return there && !since.After(then)
}
