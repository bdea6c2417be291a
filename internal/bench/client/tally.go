// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"sync"

	"fairlead.io/fairlead/internal/bench"
)

// breakages are in the order in which they are reported.
var breakages = [...]breakage{unopened, reset, closed, unanswered, misdirected, corrupted}

// Counts are what the clients of one phase saw.
type Counts struct {
	// Connections were opened, Lines were answered as they should be.
	Connections, Lines int
	broken             map[breakage]int
	// Died counts the connections that ended with their servers.
	Died int
	// Moved are the flows of which another server answered though the last one was
	// still there.
	Flows, Moved    int
	Datagrams, Lost int
}

// TCPBroken counts the connections that broke in any way.
func (c Counts) TCPBroken() int {
	n := 0
	for _, count := range c.broken {
		n += count
	}
	return n
}

// Report adds the counts; the suffix of the names tells phases apart.
func (c Counts) Report(r *bench.Report, suffix string) {
	add := func(name, unit string, n int) { r.Add(name+suffix, unit, bench.Runs{float64(n)}, nil) }
	add("tcp_broken", "connections", c.TCPBroken())
	for _, how := range breakages {
		if n := c.broken[how]; n > 0 {
			add("tcp_"+string(how), "connections", n)
		}
	}
	if c.Died > 0 {
		add("tcp_died", "connections", c.Died)
	}
	add("udp_moved", "flows", c.Moved)
	add("packets_lost", "datagrams", c.Lost)
	add("tcp_connections", "connections", c.Connections)
	add("tcp_lines", "lines", c.Lines)
	add("udp_flows", "flows", c.Flows)
	add("udp_datagrams", "datagrams", c.Datagrams)
}

// tally counts for several goroutines.
type tally struct {
	mu     sync.Mutex
	counts Counts
}

func newTally() *tally { return &tally{counts: Counts{broken: map[breakage]int{}}} }

// stream counts a connection that was opened, and how it ended: by a
// *brokenError or as it should. It returns how many have broken so far.
func (t *tally) stream(lines int, err error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Connections++
	t.counts.Lines += lines
	if broken, ok := errors.AsType[*brokenError](err); ok {
		t.counts.broken[broken.how]++
	}
	return t.counts.TCPBroken()
}

// died counts a connection whose server was killed.
func (t *tally) died(lines int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Connections++
	t.counts.Lines += lines
	t.counts.Died++
}

// flow counts a flow that has ended.
func (t *tally) flow(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Flows++
	t.counts.Datagrams += f.sent
	t.counts.Lost += len(f.pending)
	if f.moved {
		t.counts.Moved++
	}
}
