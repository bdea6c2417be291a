// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
)

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

// send sends one packet, compares the decisions and checks what is promised.
func (h *History) send(i int, phase Phase) error {
	id, ok := h.Model.Send(h.Flows[i], phase, h.now)
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
func (h *History) promised(c *client, phase Phase, id netip.AddrPort, ok bool) error {
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
	before := h.Model.Counts
	for i := range h.Flows {
		if err := h.send(i, Open); err != nil && !h.Datagrams {
			return err
		}
	}
	if !h.Full && h.Model.Counts != before {
		return fmt.Errorf("steady flows were looked up: %+v, before %+v", h.Model.Counts, before)
	}
	return h.compare()
}

// forgotten says what is left of the past.
func (h *History) forgotten() error {
	left := h.state()
	left.Counts = Counts{}
	if want := (State{Seats: len(h.configured())}); left != want {
		return fmt.Errorf("left of the past: %+v, want %+v", left, want)
	}
	return h.compare()
}
