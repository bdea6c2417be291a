// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"sync"
	"time"
)

// deaths knows when servers were dead. It may be used by several goroutines.
type deaths struct {
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

// begin is called before a server is killed.
func (d *deaths) begin(server string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, death{server: server, began: time.Now()})
}

// notice is called when no balancer sends anything to the latest dead server any
// more, end when all do again.
func (d *deaths) notice() { d.mark(func(latest *death) { latest.noticed = time.Now() }) }
func (d *deaths) end()    { d.mark(func(latest *death) { latest.ended = time.Now() }) }

func (d *deaths) mark(set func(*death)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set(&d.all[len(d.all)-1])
}

// count is how many there were.
func (d *deaths) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all)
}

// took reports whether a server's death explains the end of a connection that
// was begun then: that of its server, or if it has heard from none yet that of
// any server that the balancers still took for alive.
func (d *deaths) took(server string, then time.Time) bool {
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
