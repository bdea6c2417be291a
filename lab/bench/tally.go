// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"sync"
	"time"
)

// breakages are in the order in which they are reported.
var breakages = [...]breakage{unopened, reset, closed, unanswered, misdirected, corrupted}

// Counts are the results of the clients of one phase.
type Counts struct {
	// Connections counts those opened or tried, Lines the correct answers.
	Connections, Lines int
	broken             map[breakage]int
	// Died counts the connections that ended with their servers.
	Died int
	// Moved counts the flows answered by another server though the last one was
	// still configured.
	Flows, Moved    int
	Datagrams, Lost int
	// BrokenAt and MovedAt have a count for each second of the phase, the first one with all
	// before it. A flow that moves again counts again.
	BrokenAt, MovedAt Timeline
}

// Timeline counts events by second.
type Timeline []int

// extend makes the timeline reach a time after its beginning, whose second it returns.
func (t *Timeline) extend(after time.Duration) (second int) {
	second = max(0, int(after/time.Second))
	for len(*t) <= second {
		*t = append(*t, 0)
	}
	return second
}

func (t *Timeline) add(after time.Duration) { (*t)[t.extend(after)]++ }

// TCPBroken is the number of connections that broke in any way.
func (c Counts) TCPBroken() int {
	n := 0
	for _, count := range c.broken {
		n += count
	}
	return n
}

// Report adds the counts; the suffix of their names distinguishes phases.
func (c Counts) Report(r *Report, suffix string) {
	add := func(name, unit string, n int, timeline ...int) {
		r.Add(name+suffix, unit, Runs{float64(n)}, nil)
		r.Results[len(r.Results)-1].Timeline = timeline
	}
	add("tcp_broken", "connections", c.TCPBroken(), c.BrokenAt...)
	for _, how := range breakages {
		if n := c.broken[how]; n > 0 {
			add("tcp_"+string(how), "connections", n)
		}
	}
	if c.Died > 0 {
		add("tcp_died", "connections", c.Died)
	}
	add("udp_moved", "flows", c.Moved, c.MovedAt...)
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
	began  time.Time // of the phase
}

func newTally() *tally { return &tally{counts: Counts{broken: map[breakage]int{}}, began: time.Now()} }

// begin begins the phase.
func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began = time.Now()
}

// end returns the counts at the end of the phase.
func (t *tally) end() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.BrokenAt.extend(time.Since(t.began))
	t.counts.MovedAt.extend(time.Since(t.began))
	return t.counts
}

// stream counts a connection that ended by a *brokenError or regularly. It returns
// how many have broken so far.
func (t *tally) stream(lines int, err error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Connections++
	t.counts.Lines += lines
	if broken, ok := errors.AsType[*brokenError](err); ok {
		t.counts.broken[broken.how]++
		t.counts.BrokenAt.add(time.Since(t.began))
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

// flow counts a flow that has ended. It returns how many datagrams were lost so far.
func (t *tally) flow(f *flow) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Flows++
	t.counts.Datagrams += f.sent
	t.counts.Lost += len(f.pending)
	if len(f.moves) > 0 {
		t.counts.Moved++
	}
	for _, at := range f.moves {
		t.counts.MovedAt.add(at.Sub(t.began))
	}
	return t.counts.Lost
}

// Presence records since when servers have been in the configuration of one service
// without interruption. It is safe for concurrent use.
type Presence struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// NewPresence returns servers that have always been configured.
func NewPresence(servers []string) *Presence {
	p := &Presence{since: map[string]time.Time{}}
	for _, s := range servers {
		p.since[s] = time.Time{}
	}
	return p
}

// Leave is called before the server is removed from the first balancer.
func (p *Presence) Leave(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.since, server)
}

// Arrive is called after the server was added to the last balancer.
func (p *Presence) Arrive(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since[server] = time.Now()
}

// lasted reports whether the server has been configured since then, in use or
// drained.
func (p *Presence) lasted(server string, then time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, present := p.since[server]
	return present && !since.After(then)
}

// Deaths records when servers were killed and started again. It is safe for
// concurrent use.
type Deaths struct {
	mu  sync.Mutex
	all []death
}

// death lasts from before a server is killed until all balancers use it again.
// Until it is noticed new connections may be sent to the server. Times to come are
// zero.
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

// Notice is called when no balancer sends to the server any more.
func (d *Deaths) Notice() { d.mark(func(latest *death) { latest.noticed = time.Now() }) }

// End is called when all balancers send to the server again.
func (d *Deaths) End() { d.mark(func(latest *death) { latest.ended = time.Now() }) }

func (d *Deaths) mark(set func(*death)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set(&d.all[len(d.all)-1])
}

// Count returns the number of deaths.
func (d *Deaths) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all)
}

// took reports whether a death explains the end of a connection that was opened at
// then: the death of its server or, before the first answer, of any server whose
// death hadn't been noticed.
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
