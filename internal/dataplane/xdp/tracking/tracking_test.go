// SPDX-License-Identifier: Apache-2.0

package tracking_test

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
)

const idle = 100 * time.Second

// draw writes entries as their slots, "-" for none, with a star if unstable.
func draw(entries []uint16) string {
	words := make([]string, len(entries))
	for i, e := range entries {
		words[i] = strconv.Itoa(int(tracking.Slot(e)))
		if tracking.Slot(e) == tracking.None {
			words[i] = "-"
		}
		if e&tracking.Unstable != 0 {
			words[i] += "*"
		}
	}
	return strings.Join(words, " ")
}

// entries is the inverse of draw.
func entries(text string) []uint16 {
	var out []uint16
	for word := range strings.FieldsSeq(text) {
		slot, err := strconv.Atoi(strings.TrimSuffix(word, "*"))
		if err != nil {
			slot = tracking.None
		}
		if strings.HasSuffix(word, "*") {
			slot |= tracking.Unstable
		}
		out = append(out, uint16(slot))
	}
	return out
}

// event is a change of a ring, and the resulting ring.
type event struct {
	at time.Duration // in seconds
	do string        // next, learn or settle
	// with are the slots, or for settle the entries (by index) that flows
	// disagree with.
	with     string
	entries  string
	previous string
}

func (e event) apply(r *tracking.Ring) *tracking.Ring {
	at := e.at * time.Second
	switch e.do {
	case "next":
		return r.Next(entries(e.with), at)
	case "learn":
		return r.Learn(entries(e.with), at)
	case "adopt":
		return tracking.Adopt(r.Entries, r.Previous, at)
	}
	disagree := make([]bool, len(r.Entries))
	for _, i := range entries(e.with) {
		disagree[i] = true
	}
	return r.Settle(disagree, idle, at)
}

// TestRing has a history for each rule of docs/design/tracking.md.
func TestRing(t *testing.T) {
	for name, events := range map[string][]event{
		"the first backends have no past": {
			{0, "next", "0 1 0 1", "0 1 0 1", ""},
		},
		"nothing changes": {
			{0, "next", "0 1 0 1", "0 1 0 1", ""},
			{1, "next", "0 1 0 1", "0 1 0 1", ""},
		},
		"only entries that change are unstable, until the time-out": {
			{0, "next", "0 1 0 1", "0 1 0 1", ""},
			{10, "next", "0 1 2 1", "0 1 2* 1", "0 1 0 1"},
			{109, "settle", "", "0 1 2* 1", "0 1 0 1"},
			{110, "settle", "", "0 1 2 1", ""},
		},
		"a flow that disagrees keeps its entry unstable": {
			{0, "next", "0 1 0 1", "0 1 0 1", ""},
			{10, "next", "2 1 2 1", "2* 1 2* 1", "0 1 0 1"},
			{110, "settle", "2", "2 1 2* 1", "2 1 2 1"},
			{150, "settle", "2", "2 1 2* 1", "2 1 2 1"},
			{151, "settle", "", "2 1 2 1", ""},
		},
		"one that stayed unstable changes again": {
			{0, "next", "0 1", "0 1", ""},
			{10, "next", "2 1", "2* 1", "0 1"},
			{110, "settle", "0", "2* 1", "2 1"},
			{120, "next", "3 1", "3* 1", "2 1"},
			{220, "settle", "", "3 1", ""},
		},
		"several changes in a row: the past is the oldest": {
			{0, "next", "0 1 0", "0 1 0", ""},
			{10, "next", "2 1 0", "2* 1 0", "0 1 0"},
			{20, "next", "3 3 0", "3* 3* 0", "0 1 0"},
			{110, "settle", "", "3* 3* 0", "0 1 0"},
			{120, "settle", "", "3 3 0", ""},
		},
		"entries settle one by one": {
			{0, "next", "0 1 0", "0 1 0", ""},
			{10, "next", "2 1 0", "2* 1 0", "0 1 0"},
			{50, "next", "2 3 0", "2* 3* 0", "0 1 0"},
			{110, "settle", "", "2 3* 0", "2 1 0"},
			{120, "next", "4 3 0", "4* 3* 0", "2 1 0"},
			{150, "settle", "", "4* 3 0", "2 3 0"},
			{220, "settle", "", "4 3 0", ""},
		},
		"a backend that leaves and returns": {
			{0, "next", "0 1 0", "0 1 0", ""},
			{10, "next", "0 2 0", "0 2* 0", "0 1 0"},
			{20, "next", "0 1 0", "0 1* 0", "0 1 0"},
			{119, "settle", "", "0 1* 0", "0 1 0"},
			{120, "settle", "", "0 1 0", ""},
		},
		"another size: all are unstable, and the past keeps its size": {
			{0, "next", "0 1", "0 1", ""},
			{10, "next", "0 1 2 0", "0* 1* 2* 0*", "0 1"},
			{20, "next", "0 3 2 0", "0* 3* 2* 0*", "0 1"},
			{109, "settle", "", "0* 3* 2* 0*", "0 1"},
			{110, "settle", "", "0 3* 2 0", "0 3 2 0"},
			{120, "settle", "", "0 3 2 0", ""},
		},
		"another size while entries are unstable": {
			{0, "next", "0 1", "0 1", ""},
			{10, "next", "0 2", "0 2*", "0 1"},
			{20, "next", "0 1 2 0", "0* 1* 2* 0*", "0 1"},
			{30, "next", "0 1 2", "0* 1* 2*", "0 1"},
			{120, "settle", "", "0* 1* 2*", "0 1"},
			{130, "settle", "1", "0 1* 2", "0 1 2"},
			{140, "settle", "", "0 1 2", ""},
		},
		"back to the old size within the time-out": {
			{0, "next", "0 1", "0 1", ""},
			{10, "next", "0 1 2 0", "0* 1* 2* 0*", "0 1"},
			{20, "next", "0 1", "0* 1*", "0 1"},
			{30, "next", "0 3", "0* 3*", "0 1"},
			{120, "settle", "", "0 3*", "0 1"},
			{130, "settle", "", "0 3", ""},
		},
		"all backends gone, and back": {
			{0, "next", "0 1 0", "0 1 0", ""},
			{10, "next", "", "-* -* -*", "0 1 0"},
			{11, "next", "", "-* -* -*", "0 1 0"},
			{20, "next", "2 1 0", "2* 1* 0*", "0 1 0"},
			{120, "settle", "", "2 1 0", ""},
		},
		"all backends gone for good": {
			{0, "next", "0 1 0", "0 1 0", ""},
			{10, "next", "", "-* -* -*", "0 1 0"},
			{110, "settle", "1", "-* -* -*", "- - -"},
			{120, "settle", "", "", ""},
			{130, "next", "3 3", "3 3", ""},
		},
		"all backends gone, and back with another size": {
			{0, "next", "0 1", "0 1", ""},
			{10, "next", "", "-* -*", "0 1"},
			{20, "next", "2 2 2", "2* 2* 2*", "0 1"},
			{120, "settle", "", "2 2 2", ""},
		},
		"learning marks what will change": {
			{0, "next", "0 1 0", "0 1 0", ""},
			{10, "learn", "0 2 0", "0 1* 0", "0 1 0"},
			{15, "next", "0 2 0", "0 2* 0", "0 1 0"},
			{114, "settle", "", "0 2* 0", "0 1 0"},
			{115, "settle", "", "0 2 0", ""},
		},
		"learning before another size, or before there is nothing": {
			{0, "next", "0 1", "0 1", ""},
			{10, "learn", "0 1 2", "0* 1*", "0 1"},
			{110, "settle", "", "0 1", ""},
			{120, "learn", "", "0* 1*", "0 1"},
			{125, "next", "", "-* -*", "0 1"},
			{126, "learn", "", "-* -*", "0 1"},
		},
		"learning what doesn't happen": {
			{0, "next", "0 1", "0 1", ""},
			{10, "learn", "0 2", "0 1*", "0 1"},
			{20, "next", "0 1", "0 1*", "0 1"},
			{110, "settle", "", "0 1", ""},
		},
		"an adopted ring begins its time-out again": {
			{0, "next", "0 1", "0 1", ""},
			{10, "next", "0 2", "0 2*", "0 1"},
			{90, "adopt", "", "0 2*", "0 1"},
			{110, "settle", "", "0 2*", "0 1"},
			{190, "settle", "", "0 2", ""},
		},
		"an adopted ring of another size": {
			{0, "next", "0 1", "0 1", ""},
			{10, "next", "0 1 2", "0* 1* 2*", "0 1"},
			{90, "adopt", "", "0* 1* 2*", "0 1"},
			{110, "settle", "", "0* 1* 2*", "0 1"},
			{190, "settle", "2", "0 1 2*", "0 1 2"},
		},
		"an adopted ring that was stable": {
			{0, "next", "0 1", "0 1", ""},
			{90, "adopt", "", "0 1", ""},
			{91, "next", "0 2", "0 2*", "0 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &tracking.Ring{}
			for _, e := range events {
				old, before := r, draw(r.Entries)+"/"+draw(r.Previous)
				r = e.apply(r)
				if got := draw(r.Entries); got != e.entries {
					t.Fatalf("%ds: %s %s: entries %q, want %q", e.at, e.do, e.with, got, e.entries)
				}
				if got := draw(r.Previous); got != e.previous {
					t.Fatalf("%ds: %s %s: previous %q, want %q", e.at, e.do, e.with, got, e.previous)
				}
				if got := r.Unstable(); got != strings.Count(e.entries, "*") {
					t.Errorf("%ds: %d unstable entries in %q", e.at, got, e.entries)
				}
				if draw(old.Entries)+"/"+draw(old.Previous) != before {
					t.Errorf("%ds: %s %s changed the ring that it began with", e.at, e.do, e.with)
				}
			}
		})
	}
}

// An update without changes returns the ring itself: nothing is written then.
func TestNothingChanges(t *testing.T) {
	empty := &tracking.Ring{}
	stable := empty.Next(entries("0 1"), 0)
	unstable := stable.Next(entries("0 2"), time.Second)
	for name, same := range map[string]bool{
		"nothing for no backends":   empty.Next(nil, 0) == empty,
		"stable, the same slots":    stable.Next(entries("0 1"), 9*time.Second) == stable,
		"unstable, the same slots":  unstable.Next(entries("0 2"), 9*time.Second) == unstable,
		"learn the same":            stable.Learn(entries("0 1"), 9*time.Second) == stable,
		"learn what is learned":     unstable.Learn(entries("0 3"), 9*time.Second) == unstable,
		"settle what is stable":     stable.Settle(make([]bool, 2), idle, idle*2) == stable,
		"settle before it is time":  unstable.Settle(make([]bool, 2), idle, idle) == unstable,
		"learn where there is none": empty.Learn(entries("0 1"), 0) == empty,
	} {
		if !same {
			t.Errorf("%s: another ring", name)
		}
	}
}

// A step may be taken when every entry that it changes has been unstable for
// long enough.
func TestLearned(t *testing.T) {
	r := (&tracking.Ring{}).Next(entries("0 1 2"), 0)
	r = r.Next(entries("0 1 3"), 10*time.Second)
	r = r.Learn(entries("0 4 3"), 20*time.Second)
	for _, c := range []struct {
		slots string
		at    time.Duration
		all   bool
	}{
		{"0 1 3", 0, true},
		{"0 1 4", 15, true},
		{"0 4 4", 25, true},
		{"4 4 4", 0, false},
		{"0 1 3 0", 0, false},
		{"", 0, false},
	} {
		if at, all := r.Learned(entries(c.slots), 5*time.Second); at != c.at*time.Second || all != c.all {
			t.Errorf("%q: learned at %s (%t), want %ds (%t)", c.slots, at, all, c.at, c.all)
		}
	}
	gone := r.Next(nil, 30*time.Second)
	if at, all := gone.Learned(nil, 5*time.Second); at != 0 || !all {
		t.Errorf("nothing to learn, but learned at %s (%t)", at, all)
	}
}

// The place of a hash is its share of the ring, and Uses has every slot that a
// packet may be sent to.
func TestPlaceAndUses(t *testing.T) {
	r := (&tracking.Ring{}).Next(entries("0 1 2 3"), 0).Next(entries("0 1 2 5 5"), 1)
	for hash, want := range map[uint32]int{0: 0, 1 << 31: 2, 1<<32 - 1: 4} {
		if got := r.Place(hash); got != want {
			t.Errorf("place of %x: %d, want %d", hash, got, want)
		}
	}
	var used []uint16
	r.Uses(func(slot uint16) { used = append(used, slot) })
	slices.Sort(used)
	used = slices.Compact(used)
	if want := []uint16{0, 1, 2, 3, 5}; !slices.Equal(used, want) {
		t.Errorf("uses %v, want %v", used, want)
	}
}

// Rings have millions of entries, all of which may be unstable.
func TestMemory(t *testing.T) {
	const size = 1 << 20
	r := (&tracking.Ring{}).Next(make([]uint16, size/2), 0)
	slots := make([]uint16, size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r = r.Next(slots, time.Second)
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / size; n > 5 || r.Unstable() != size {
		t.Errorf("%d bytes for an entry of %d that are unstable", n, r.Unstable())
	}
}

// After any number of changes no entry becomes stable too early, and all do in the end.
func TestManyChanges(t *testing.T) {
	r := (&tracking.Ring{}).Next([]uint16{0, 0}, 0).Next([]uint16{1, 0}, time.Second)
	last := time.Second
	for i := range 20_000 {
		last += time.Millisecond
		r = r.Next([]uint16{1, uint16(1 + i%2)}, last)
		if r = r.Settle(make([]bool, 2), idle, last); r.Unstable() != 2 {
			t.Fatalf("%v: entries %s", last, draw(r.Entries))
		}
	}
	if r = r.Settle(make([]bool, 2), idle, last+idle-1); draw(r.Entries) != "1 2*" {
		t.Errorf("entries %s", draw(r.Entries))
	}
	if r = r.Settle(make([]bool, 2), idle, last+idle); draw(r.Entries) != "1 2" {
		t.Errorf("entries %s", draw(r.Entries))
	}
}
