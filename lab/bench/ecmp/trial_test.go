// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/lab/netlab"
)

// via are equal next hops through 10.0.2.n.
func via(ends ...byte) netlab.Hops {
	var gateways []netip.Addr
	for _, n := range ends {
		gateways = append(gateways, netip.AddrFrom4([4]byte{10, 0, 2, n}))
	}
	return netlab.EqualHops(gateways...)
}

// at is the state of the table from so many milliseconds after the cause.
type at struct {
	ms   int
	hops netlab.Hops
}

// A trial lasts three seconds. The actual table at the cause counts. The absence of the subject is
// recorded but isn't wrong; the others have to stay.
func TestJudge(t *testing.T) {
	one, two, all, uneven := via(11), via(11, 12), via(11, 12, 13), via(11, 12)
	uneven[0].Weight = 2
	for name, test := range map[string]struct {
		before, first, after netlab.Hops
		subject              byte // 0: none
		events               []at
		delay                int // ms
		wrong                string
		gaps, absences       []int // ms
	}{
		"at once":            {two, two, one, 0, []at{{60, one}}, 60, "", nil, nil},
		"in two steps":       {one, one, all, 0, []at{{20, two}, {70, all}}, 70, "", nil, nil},
		"never":              {two, two, one, 0, nil, 3000, "in the end via 10.0.2.11", nil, nil},
		"late":               {two, two, one, 0, []at{{1001, one}}, 1001, "right only after 1.001s", nil, nil},
		"not for good":       {one, one, two, 0, []at{{10, two}, {20, one}, {30, two}}, 30, "", nil, nil},
		"right and back":     {one, one, two, 0, []at{{10, two}, {20, one}}, 3000, "in the end", nil, nil},
		"uneven":             {one, one, two, 0, []at{{10, uneven}}, 3000, "in the end", nil, nil},
		"a stranger":         {one, one, two, 0, []at{{5, via(11, 13)}, {10, two}}, 10, "has via 10.0.2.13", nil, nil},
		"a gap":              {two, two, one, 0, []at{{10, nil}, {12, one}}, 12, "", []int{2}, nil},
		"gaps of one of two": {two, two, all, 0, []at{{10, via(12, 13)}, {11, via(12)}, {14, all}}, 14, "", []int{4}, nil},
		"a long gap":         {two, two, two, 0, []at{{10, one}, {2000, two}}, 2000, "lacks a balancer for 1.99s", []int{1990}, nil},
		"a gap without end":  {two, two, two, 0, []at{{2500, one}}, 3000, "in the end", []int{500}, nil},
		"nothing to do":      {one, one, one, 0, nil, 0, "", nil, nil},

		"right already":       {two, one, one, 0, nil, 0, "", nil, nil},
		"lacks one at first":  {two, via(12), one, 0, []at{{30, one}}, 30, "", []int{30}, nil},
		"none at all":         {two, nil, one, 0, []at{{2000, one}}, 2000, "lacks a balancer for 2s", []int{2000}, nil},
		"a stranger at first": {two, via(11, 14), one, 0, []at{{30, one}}, 30, "has via 10.0.2.14", nil, nil},

		"subject stays":      {all, all, all, 13, nil, 0, "", nil, nil},
		"subject goes":       {all, all, all, 13, []at{{300, two}, {500, all}}, 500, "", nil, []int{200}},
		"subject goes twice": {all, all, all, 13, []at{{1, two}, {3, all}, {10, two}, {14, all}}, 14, "", nil, []int{2, 4}},
		"takes another away": {all, all, all, 13, []at{{300, one}, {500, all}}, 500, "", []int{200}, []int{200}},
		"never returns":      {all, all, all, 13, []at{{300, two}}, 3000, "in the end", nil, []int{2700}},
	} {
		cause := time.Now()
		tr := &trial{cause: cause, end: cause.Add(milli(3000)), before: test.before, after: test.after, first: test.first, limit: limit}
		if test.subject != 0 {
			tr.subject = via(test.subject)[0].Gateway
		}
		for _, e := range test.events {
			tr.events = append(tr.events, netlab.RouteEvent{At: cause.Add(milli(e.ms)), Hops: e.hops})
		}
		got := tr.judge()
		if got.delay != milli(test.delay) || !strings.Contains(got.wrong, test.wrong) || (test.wrong == "") != (got.wrong == "") ||
			!slices.Equal(got.gaps, millis(test.gaps)) || !slices.Equal(got.absences, millis(test.absences)) {
			t.Errorf("%s: %+v, want %d ms, wrong %q, gaps %v, absences %v", name, got, test.delay, test.wrong, test.gaps, test.absences)
		}
	}
}

func milli(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }

func millis(all []int) (durations []time.Duration) {
	for _, ms := range all {
		durations = append(durations, milli(ms))
	}
	return durations
}
