// SPDX-License-Identifier: Apache-2.0

package client

import (
	"sync"
	"time"
)

// Presence knows since when servers have been in the configuration of one
// service without a break. It may be used by several goroutines.
type Presence struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// NewPresence knows servers that have always been there.
func NewPresence(servers []string) *Presence {
	p := &Presence{since: map[string]time.Time{}}
	for _, s := range servers {
		p.since[s] = time.Time{}
	}
	return p
}

// Leave is called before the first balancer is told that the server is gone.
func (p *Presence) Leave(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.since, server)
}

// Arrive is called after the last balancer knows that the server is there.
func (p *Presence) Arrive(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since[server] = time.Now()
}

// lasted reports whether the server has been there since then, in use or
// drained.
func (p *Presence) lasted(server string, then time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, there := p.since[server]
	return there && !since.After(then)
}
