// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"errors"
	"sync"

	"fairlead.io/fairlead/internal/bench"
)

// breakages are in the order in which they are reported.
var breakages = [...]breakage{unopened, reset, closed, unanswered, misdirected, corrupted}

// counts are what the clients of one phase saw.
type counts struct {
	// connections were opened, lines were answered as they should be.
	connections, lines int
	broken             map[breakage]int
	// died counts the connections that ended with their servers.
	died            int
	flows, moved    int
	datagrams, lost int
}

// tcpBroken counts the connections that broke in any way.
func (c counts) tcpBroken() int {
	n := 0
	for _, count := range c.broken {
		n += count
	}
	return n
}

// report adds the counts; the suffix of the names tells phases apart.
func (c counts) report(r *bench.Report, suffix string) {
	add := func(name, unit string, n int) { r.Add(name+suffix, unit, bench.Runs{float64(n)}, nil) }
	add("tcp_broken", "connections", c.tcpBroken())
	for _, how := range breakages {
		if n := c.broken[how]; n > 0 {
			add("tcp_"+string(how), "connections", n)
		}
	}
	if c.died > 0 {
		add("tcp_died", "connections", c.died)
	}
	add("udp_moved", "flows", c.moved)
	add("packets_lost", "datagrams", c.lost)
	add("tcp_connections", "connections", c.connections)
	add("tcp_lines", "lines", c.lines)
	add("udp_flows", "flows", c.flows)
	add("udp_datagrams", "datagrams", c.datagrams)
}

// tally counts for several goroutines.
type tally struct {
	mu     sync.Mutex
	counts counts
}

func newTally() *tally { return &tally{counts: counts{broken: map[breakage]int{}}} }

// stream counts a connection that was opened, and how it ended: by a
// *brokenError or as it should. It returns how many have broken so far.
func (t *tally) stream(lines int, err error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.connections++
	t.counts.lines += lines
	if broken, ok := errors.AsType[*brokenError](err); ok {
		t.counts.broken[broken.how]++
	}
	return t.counts.tcpBroken()
}

// died counts a connection whose server was killed.
func (t *tally) died(lines int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.connections++
	t.counts.lines += lines
	t.counts.died++
}

// flow counts a flow that has ended.
func (t *tally) flow(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.flows++
	t.counts.datagrams += f.sent
	t.counts.lost += len(f.pending)
	if f.moved {
		t.counts.moved++
	}
}
