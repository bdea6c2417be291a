// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Subject is something that is compared with the model, for example the data
// plane with the real program.
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
	// State returns the counts that are visible from outside.
	State() (State, error)
}

// State has the counts of a balancer of one service. Recorded flows are
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

// Shape has the dimensions of a history.
type Shape struct {
	// Flows are those that send packets. Datagrams says whether they are UDP.
	Flows     []Flow
	Datagrams bool
	// Learn is the time for which UDP flows are learned.
	Learn time.Duration
	// Full is whether every flow is tracked.
	Full bool
	// Backends are those that come and go.
	Backends []netip.AddrPort
}

// place is a backend of the world, configured or not.
type place struct {
	Backend
	configured bool
}

// endpoint is the client's view of a flow.
type endpoint struct {
	// home is the backend that got the last packet; it is valid if sent is. last
	// is when that was; 0 is never.
	home netip.AddrPort
	sent bool
	last time.Duration
	// loose is whether the flow may have been moved since by a change that
	// could not be prepared for. Only UDP flows are.
	loose bool
}

// History is a random history of one service: backends come and go, time
// passes, flows send packets. It checks that the guarantees to clients hold for the
// model, and that a Subject, if there is one, does the same.
type History struct {
	Shape
	model   *model
	random  *rand.Rand
	subject Subject
	now     time.Duration
	world   []place
	clients []endpoint
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
		Shape: shape, model: newModel(shape.Learn, shape.Full),
		random: random, subject: subject, now: long,
		clients: make([]endpoint, len(shape.Flows)), offered: map[netip.AddrPort]bool{}, inherited: map[netip.AddrPort]bool{},
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

// update gives the balancers the present backends.
func (h *History) update() error {
	remembered := make([]bool, len(h.Flows))
	for i, flow := range h.Flows {
		remembered[i] = h.model.remembers(flow)
	}
	backends := h.configured()
	for _, b := range backends {
		delete(h.inherited, b.ID)
	}
	step := h.model.update(backends, h.reachable, h.now)
	h.loosen(step, remembered)
	if step != waiting {
		h.offer(backends)
	}
	if h.subject == nil {
		return nil
	}
	return h.subject.Update(backends, h.reachable)
}

// loosen takes note of the UDP flows that a step may move: those that were not
// seen in the time in which flows were learned, or all if there was none.
func (h *History) loosen(step step, remembered []bool) {
	if !h.Datagrams || step == still || step == waiting {
		return
	}
	for i := range h.clients {
		c := &h.clients[i]
		learned := step == planned && h.now-c.last < h.Learn
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

// pass lets time pass. A step that is due then is taken, and most often a sweep
// sweeps.
func (h *History) pass(d time.Duration) error {
	h.now += d
	if h.subject != nil {
		if err := h.subject.Pass(d); err != nil {
			return err
		}
	}
	if at, waits := h.model.due, h.model.waits; waits && h.now >= at {
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
	h.model.sweep(h.now)
	if h.subject == nil {
		return nil
	}
	return h.subject.Sweep()
}

// restart replaces the agent. The next one begins with an update, but packets
// don't wait for it.
func (h *History) restart() error {
	h.model.restart(h.now)
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
	if want := h.model.state(); err == nil && got != want {
		err = fmt.Errorf("state %+v, the model has %+v", got, want)
	}
	return err
}

// packets sends packets of some flows. Most TCP connections go on; some begin
// again with the same tuple, and some were never seen to begin.
func (h *History) packets() error {
	for range 1 + h.random.IntN(8) {
		i := h.random.IntN(len(h.Flows))
		phase := Open
		switch {
		case h.Datagrams:
			phase = Datagram
		case h.random.IntN(5) == 0, !h.clients[i].sent && h.random.IntN(4) > 0:
			phase = Opening
		}
		if err := h.send(i, phase); err != nil {
			return err
		}
	}
	return nil
}

// everybody sends a packet of every flow that is there.
func (h *History) everybody() error {
	phase := Open
	if h.Datagrams {
		phase = Datagram
	}
	for i := range h.clients {
		if !h.clients[i].sent {
			continue
		}
		if err := h.send(i, phase); err != nil {
			return err
		}
	}
	return nil
}

// send sends one packet, compares the decisions and checks the guarantees.
func (h *History) send(i int, phase Phase) error {
	id, ok := h.model.send(h.Flows[i], phase, h.now)
	if h.subject != nil {
		got, sent, err := h.subject.Send(i, phase)
		if err != nil {
			return err
		}
		if got != id || sent != ok {
			return fmt.Errorf("flow %d (%s) went to %s (%t), the model sends it to %s (%t)", i, phase, got, sent, id, ok)
		}
	}
	c := &h.clients[i]
	if err := h.promised(c, phase, id, ok); err != nil {
		return fmt.Errorf("flow %d (%s): %w", i, phase, err)
	}
	c.home, c.sent, c.last, c.loose = id, ok, h.now, false
	return nil
}

// promised says which promise a decision breaks, if any.
func (h *History) promised(c *endpoint, phase Phase, id netip.AddrPort, ok bool) error {
	begins := phase == Opening || phase == Datagram && !c.sent && c.last == 0
	switch {
	case ok && !h.lives(id):
		return fmt.Errorf("it was sent to %s, which can't be reached", id)
	case begins && ok && !h.offered[id]:
		return fmt.Errorf("it is new and was sent to %s, which takes no new flows", id)
	case begins && !ok && len(h.offered) > 0:
		return fmt.Errorf("it is new and was dropped, though %d backends take new flows", len(h.offered))
	case begins || !c.sent || c.loose || h.now-c.last > Idle || !h.lives(c.home):
		return nil // nothing is promised
	case !ok:
		return fmt.Errorf("it was dropped, though its backend %s lives", c.home)
	case id != c.home:
		return fmt.Errorf("it moved to %s, though its backend %s lives", id, c.home)
	}
	return nil
}

// quiet lets all flows end, after which nothing may be left of the past, and
// then sends a packet of each flow, which may leave no trace either.
func (h *History) quiet() error {
	h.now += Idle + long
	if h.subject != nil {
		if err := h.subject.Pass(Idle + long); err != nil {
			return err
		}
	}
	if err := h.update(); err != nil {
		return err
	}
	if err := h.pass(Idle + long); err != nil {
		return err
	}
	if err := h.sweep(); err != nil {
		return err
	}
	if err := h.forgotten(); err != nil {
		return err
	}
	before := h.model.counts
	for i := range h.Flows {
		if err := h.send(i, Open); err != nil && !h.Datagrams {
			return err
		}
	}
	if !h.Full && h.model.counts != before {
		return fmt.Errorf("steady flows were looked up: %+v, before %+v", h.model.counts, before)
	}
	return h.compare()
}

// forgotten returns an error if state of the past is left.
func (h *History) forgotten() error {
	left := h.model.state()
	left.Counts = Counts{}
	if want := (State{Seats: len(h.configured())}); left != want {
		return fmt.Errorf("left of the past: %+v, want %+v", left, want)
	}
	return h.compare()
}
