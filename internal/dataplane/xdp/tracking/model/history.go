// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Subject is something that claims to decide as a Balancer does, for example
// the data plane with the real program.
type Subject interface {
	// Update takes the service's backends, and which addresses can be reached.
	Update(backends []Backend, reachable func(netip.AddrPort) bool) error
	// Pass lets time pass, Sweep sweeps, and Restart puts a new agent in the old
	// one's place.
	Pass(d time.Duration) error
	Sweep() error
	Restart() error
	// Send sends a packet of the flow of that number.
	Send(flow int, phase Phase) (id netip.AddrPort, ok bool, err error)
	// State is what can be counted from outside.
	State() (State, error)
}

// State is what can be counted of a balancer of one service. Recorded flows are
// counted as they are, and not as they were last swept.
type State struct {
	Counts
	Recorded, Unstable, Seats int
}

// Times of a history. They lie so far from each other's multiples that a clock
// which is some seconds off makes no difference.
const (
	Idle  = 8*time.Hour + 45*time.Second
	Learn = time.Minute
	short = Learn / 2
	long  = time.Hour
)

// Shape is what a history is about.
type Shape struct {
	// Flows are those that send packets. Datagrams says whether they are UDP.
	Flows     []Flow
	Datagrams bool
	// Learn is the time for which UDP flows are learned.
	Learn time.Duration
	Full  bool
	// Seed is that of the rings.
	Seed uint64
	// Backends are those that come and go.
	Backends []netip.AddrPort
}

// place is a backend of the world, configured or not.
type place struct {
	Backend
	configured bool
}

// client is what a flow's end knows of it.
type client struct {
	// home is the backend that got the last packet; it is valid if sent is. last
	// is when that was; 0 is never.
	home netip.AddrPort
	sent bool
	last time.Duration
	// loose is whether the flow may have been moved since by a change that
	// nobody could prepare for. Only UDP flows are.
	loose bool
}

// History is a random history of one service: backends come and go, time
// passes, flows send packets. It checks that what is promised holds for a
// Balancer, and that a Subject, if there is one, does the same.
type History struct {
	Shape
	Model   *Balancer
	random  *rand.Rand
	subject Subject
	now     time.Duration
	world   []place
	clients []client
	// offered are the backends that new flows may be sent to.
	offered map[netip.AddrPort]bool
	// inherited are backends that had left when the agent was replaced, and
	// whether they could be reached: the new one doesn't follow them, and leaves
	// them as they were.
	inherited map[netip.AddrPort]bool
}

// NewHistory returns a history that hasn't begun; subject may be nil.
func NewHistory(random *rand.Rand, shape Shape, subject Subject) *History {
	h := &History{
		Shape: shape, Model: New(shape.Seed, Idle, shape.Learn, shape.Full),
		random: random, subject: subject, now: long,
		clients: make([]client, len(shape.Flows)), offered: map[netip.AddrPort]bool{}, inherited: map[netip.AddrPort]bool{},
	}
	for i, id := range shape.Backends {
		h.world = append(h.world, place{Backend{ID: id, Weight: 1, Usable: true}, i < len(shape.Backends)/2})
	}
	return h
}

// Run takes that many steps, and then lets everything become quiet.
func (h *History) Run(steps int) error {
	if err := h.update(); err != nil {
		return err
	}
	for i := range steps {
		what, do := h.choose()
		err := do()
		if err == nil {
			err = h.compare()
		}
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i, what, err)
		}
	}
	if err := h.quiet(); err != nil {
		return fmt.Errorf("after %d steps: %w", steps, err)
	}
	return nil
}

// choose picks the next event.
func (h *History) choose() (what string, do func() error) {
	switch n := h.random.IntN(100); {
	case n < 60:
		return "packets", h.packets
	case n < 66:
		return "packets of all flows", h.everybody
	case n < 84:
		return "change of backends", h.change
	case n < 89:
		return "short time", func() error { return h.pass(short) }
	case n < 97:
		return "long time", func() error { return h.pass(long * time.Duration(1+h.random.IntN(4))) }
	case n < 99:
		return "idle time", func() error { return h.pass(Idle + long) }
	}
	return "restart", h.restart
}

// change changes one to three backends.
func (h *History) change() error {
	for range 1 + h.random.IntN(3) {
		one := &h.world[h.random.IntN(len(h.world))]
		switch h.random.IntN(6) {
		case 0, 1:
			one.configured = !one.configured
		case 2:
			one.Weight = 1 - min(one.Weight, 1) // drained, and back
		case 3:
			one.Weight = h.random.IntN(4)
		case 4:
			one.Usable = !one.Usable
		case 5:
			one.Usable = true
		}
	}
	if h.random.IntN(20) == 0 {
		for i := range h.world {
			h.world[i].configured = false
		}
	}
	return h.update()
}

func (h *History) configured() []Backend {
	var all []Backend
	for _, one := range h.world {
		if one.configured {
			all = append(all, one.Backend)
		}
	}
	return all
}

func (h *History) reachable(id netip.AddrPort) bool {
	for _, one := range h.world {
		if one.ID == id {
			return one.Usable
		}
	}
	return false
}

// lives reports whether a backend is taken to be reachable.
func (h *History) lives(id netip.AddrPort) bool {
	if lives, inherited := h.inherited[id]; inherited {
		return lives
	}
	return h.reachable(id)
}

// update tells the balancers what backends there are now.
func (h *History) update() error {
	remembered := make([]bool, len(h.Flows))
	for i, flow := range h.Flows {
		remembered[i] = h.Model.Remembers(flow)
	}
	backends := h.configured()
	for _, b := range backends {
		delete(h.inherited, b.ID)
	}
	step := h.Model.Update(backends, h.reachable, h.now)
	h.loosen(step, remembered)
	if step != Waiting {
		h.offer(backends)
	}
	if h.subject == nil {
		return nil
	}
	return h.subject.Update(backends, h.reachable)
}

// loosen takes note of the UDP flows that a step may move: those that were not
// seen in the time in which flows were learned, or all if there was none.
func (h *History) loosen(step Step, remembered []bool) {
	if !h.Datagrams || step == Still || step == Waiting {
		return
	}
	for i := range h.clients {
		c := &h.clients[i]
		learned := step == Planned && h.now-c.last < h.Learn
		c.loose = c.loose || !learned && !remembered[i]
	}
}

// offer notes which backends new flows may be sent to.
func (h *History) offer(backends []Backend) {
	clear(h.offered)
	for _, b := range backends {
		if b.Weight > 0 && b.Usable {
			h.offered[b.ID] = true
		}
	}
}

// pass lets time pass. A step that is due then is taken, and most often somebody
// sweeps.
func (h *History) pass(d time.Duration) error {
	h.now += d
	if h.subject != nil {
		if err := h.subject.Pass(d); err != nil {
			return err
		}
	}
	if at, waits := h.Model.Due(); waits && h.now >= at {
		if err := h.update(); err != nil {
			return err
		}
	}
	if h.random.IntN(4) == 0 {
		return nil
	}
	return h.sweep()
}

func (h *History) sweep() error {
	h.Model.Sweep(h.now)
	if h.subject == nil {
		return nil
	}
	return h.subject.Sweep()
}

// restart replaces the agent. The next one begins with an update, but packets
// don't wait for it.
func (h *History) restart() error {
	h.Model.Restart(h.now)
	for _, one := range h.world {
		if !one.configured {
			h.inherited[one.ID] = h.lives(one.ID)
		}
	}
	if h.subject != nil {
		if err := h.subject.Restart(); err != nil {
			return err
		}
	}
	if err := h.packets(); err != nil {
		return err
	}
	return h.update()
}

// compare finds differences between the model and the subject.
func (h *History) compare() error {
	if h.subject == nil {
		return nil
	}
	got, err := h.subject.State()
	if want := h.state(); err == nil && got != want {
		err = fmt.Errorf("state %+v, the model has %+v", got, want)
	}
	return err
}

func (h *History) state() State {
	return State{Counts: h.Model.Counts, Recorded: h.Model.Recorded(), Unstable: h.Model.Unstable(), Seats: h.Model.Seats()}
}
