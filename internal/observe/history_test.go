// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fake"
)

// second is a interval of one second in which so many packets came for each service
// and were dropped.
func second(packets map[lb.VIP]uint64, dropped uint64) interval {
	began := time.Unix(0, 0)
	s := interval{
		from:  dataplane.Stats{Exits: map[string]uint64{"drop_loop": 0, "pass_not_vip": 0}, Services: map[lb.VIP]dataplane.ServiceStats{}},
		to:    dataplane.Stats{Exits: map[string]uint64{"drop_loop": dropped, "pass_not_vip": 999}, Services: map[lb.VIP]dataplane.ServiceStats{}},
		began: began, ended: began.Add(time.Second),
	}
	for vip, n := range packets {
		s.from.Services[vip] = dataplane.ServiceStats{}
		s.to.Services[vip] = dataplane.ServiceStats{Traffic: dataplane.Traffic{Packets: n, Bytes: 100 * n, NewFlows: n / 2}}
	}
	return s
}

func TestHistory(t *testing.T) {
	h := newHistory()
	if latest := h.shown().PacketsPerSecond; len(latest) != HistoryLength || !math.IsNaN(float64(latest[HistoryLength-1])) {
		t.Errorf("a new history has %v", latest)
	}
	h.add(second(map[lb.VIP]uint64{fake.Numbered(1): 10, fake.Numbered(2): 0}, 3))
	h.gap()
	h.add(second(map[lb.VIP]uint64{fake.Numbered(1): 20, fake.Numbered(2): 6}, 0))
	tail := func(p Points) string { return fmt.Sprint([]float32(p[HistoryLength-4:])) }
	shown := h.shown()
	for what, pair := range map[string][2]string{
		"packets":                            {tail(shown.PacketsPerSecond), "[NaN 10 NaN 26]"},
		"bytes":                              {tail(shown.BytesPerSecond), "[NaN 1000 NaN 2600]"},
		"new flows":                          {tail(shown.NewFlowsPerSecond), "[NaN 5 NaN 13]"},
		"drops":                              {tail(shown.DropsPerSecond), "[NaN 3 NaN 0]"},
		"a service":                          {tail(h.points(h.services[fake.Numbered(1)])), "[NaN 10 NaN 20]"},
		"one that was idle, from when it is": {tail(h.points(h.services[fake.Numbered(2)])), "[NaN 0 NaN 6]"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: have %s, want %s", what, pair[0], pair[1])
		}
	}

	h.add(second(map[lb.VIP]uint64{fake.Numbered(2): 1}, 0))
	if len(h.services) != 1 {
		t.Error("a service that has gone still has a history")
	}
	many := map[lb.VIP]uint64{}
	for i := range 2 * maxSeries {
		many[fake.Numbered(i)] = 1
	}
	for range 2 * HistoryLength {
		h.add(second(map[lb.VIP]uint64{fake.Numbered(1): 10}, 0))
	}
	h.add(second(many, 0))
	if len(h.services) != maxSeries {
		t.Errorf("%d services have a history, want %d", len(h.services), maxSeries)
	}
	if slices.ContainsFunc(h.points(h.services[fake.Numbered(1)]), func(v float32) bool { return v != v }) {
		t.Error("five minutes later the history still has gaps")
	}
}

func TestPoints(t *testing.T) {
	text, err := json.Marshal(Points{0, 0.004, 0.126, 9.999, 12.6, 1e9, float32(math.NaN())})
	if want := "[0,0,0.13,10,13,1000000000,null]"; err != nil || string(text) != want {
		t.Errorf("have %s (%v), want %s", text, err, want)
	}
	if text, err = json.Marshal(Points(nil)); err != nil || string(text) != "[]" {
		t.Errorf("no points are %s (%v)", text, err)
	}
}
