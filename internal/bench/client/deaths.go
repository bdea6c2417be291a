// SPDX-License-Identifier: Apache-2.0

package client

import (
	"sync"
	"time"
)

// Deaths knows when servers were dead. It may be used by several goroutines.
type Deaths struct {
	mu  sync.Mutex
	all []death
}

// death of one server: from before it was killed until after the last balancer
// noticed that it was back. Until noticed it may have got new connections. What
// has not come yet is zero.
type death struct {
	server                string
	began, noticed, ended time.Time
}

// Begin is called before a server is killed.
func (d *Deaths) Begin(server string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, death{server: server, began: time.Now()})
}

// Notice is called when no balancer sends anything to the latest dead server any
// more.
func (d *Deaths) Notice() { d.mark(func(latest *death) { latest.noticed = time.Now() }) }

// End is called when all balancers send to it again.
func (d *Deaths) End() { d.mark(func(latest *death) { latest.ended = time.Now() }) }

func (d *Deaths) mark(set func(*death)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set(&d.all[len(d.all)-1])
}

// Count is how many there were.
func (d *Deaths) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all)
}

// took reports whether a server's death explains the end of a connection that
// was begun then: that of its server, or if it has heard from none yet that of
// any server that the balancers still took for alive.
func (d *Deaths) took(server string, then time.Time) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.all {
		over := one.ended
		if server == "" {
			over = one.noticed
		}
		if (server == "" || server == one.server) && (over.IsZero() || over.After(then)) {
			return true
		}
	}
	return false
}
