// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"math"
	"strconv"
	"strings"

	"fairlead.io/fairlead/internal/lb"
)

const (
	// HistoryLength is the number of seconds that are remembered.
	HistoryLength = 300
	// maxSeries bounds how many services have a history: 1.2 KB each.
	maxSeries = 4096
)

// Points are rates, one a second, the latest last. A missing measurement is NaN, in JSON
// null.
type Points []float32

// MarshalJSON writes no more digits than a graph can show.
func (p Points) MarshalJSON() ([]byte, error) {
	text := make([]byte, 0, 4*len(p)+2)
	text = append(text, '[')
	for i, v := range p {
		if i > 0 {
			text = append(text, ',')
		}
		switch v := float64(v); {
		case math.IsNaN(v):
			text = append(text, "null"...)
		case v >= 10:
			text = strconv.AppendFloat(text, math.Round(v), 'f', 0, 64)
		default:
			text = strconv.AppendFloat(text, math.Round(100*v)/100, 'f', -1, 64)
		}
	}
	return append(text, ']'), nil
}

// Totals are the rates of all services together.
type Totals struct {
	Rate
	// DropsPerSecond is the rate of packets that leave by the exits that drop.
	DropsPerSecond float64 `json:"dropsPerSecond"`
}

// History is how the totals went in the last HistoryLength seconds.
type History struct {
	PacketsPerSecond  Points `json:"packetsPerSecond"`
	BytesPerSecond    Points `json:"bytesPerSecond"`
	NewFlowsPerSecond Points `json:"newFlowsPerSecond"`
	DropsPerSecond    Points `json:"dropsPerSecond"`
}

// series is a ring of rates; the history has the position of the oldest.
type series [HistoryLength]float32

// history remembers the last HistoryLength seconds.
type history struct {
	// at is where the next second goes.
	at int
	// The totals.
	packets, bytes, flows, drops series
	// services have their packets a second. Those that have been idle all the time
	// have no series, nor have more than maxSeries.
	services map[lb.VIP]*series
}

func newHistory() *history {
	h := &history{services: map[lb.VIP]*series{}}
	for range HistoryLength {
		h.gap()
	}
	return h
}

// add remembers one second.
func (h *history) add(s interval) {
	total := s.totals()
	h.packets[h.at] = float32(total.PacketsPerSecond)
	h.bytes[h.at] = float32(total.BytesPerSecond)
	h.flows[h.at] = float32(total.NewFlowsPerSecond)
	h.drops[h.at] = float32(total.DropsPerSecond)
	for vip, ring := range h.services {
		if _, present := s.to.Services[vip]; !present {
			delete(h.services, vip)
			continue
		}
		ring[h.at] = 0
	}
	for vip := range s.to.Services {
		if rate := s.service(vip).PacketsPerSecond; rate > 0 {
			h.put(vip, rate)
		}
	}
	h.at = (h.at + 1) % HistoryLength
}

func (h *history) put(vip lb.VIP, rate float64) {
	ring := h.services[vip]
	if ring == nil && len(h.services) >= maxSeries {
		return
	}
	if ring == nil {
		ring = h.idle()
		h.services[vip] = ring
	}
	ring[h.at] = float32(rate)
}

// idle is the series of a service that has had no packets yet, where the counters could be read.
func (h *history) idle() *series {
	ring := new(series)
	for i, v := range h.packets {
		if v != v { // not a number
			ring[i] = v
		}
	}
	return ring
}

// gap remembers a second of which nothing is known.
func (h *history) gap() {
	unknown := float32(math.NaN())
	for _, ring := range []*series{&h.packets, &h.bytes, &h.flows, &h.drops} {
		ring[h.at] = unknown
	}
	for _, ring := range h.services {
		ring[h.at] = unknown
	}
	h.at = (h.at + 1) % HistoryLength
}

// shown is the history of the totals.
func (h *history) shown() History {
	return History{
		PacketsPerSecond:  h.points(&h.packets),
		BytesPerSecond:    h.points(&h.bytes),
		NewFlowsPerSecond: h.points(&h.flows),
		DropsPerSecond:    h.points(&h.drops),
	}
}

// points returns a series from the oldest to the latest.
func (h *history) points(ring *series) Points {
	list := make(Points, 0, HistoryLength)
	list = append(list, ring[h.at:]...)
	return append(list, ring[:h.at]...)
}

// dropPrefix begins the names of the exits that drop.
const dropPrefix = "drop_"

// totals sums up the services, and the exits that drop.
func (s interval) totals() Totals {
	var t Totals
	for vip := range s.to.Services {
		t.add(s.service(vip))
	}
	for name := range s.to.Exits {
		if strings.HasPrefix(name, dropPrefix) {
			t.DropsPerSecond += s.exit(name)
		}
	}
	return t
}
