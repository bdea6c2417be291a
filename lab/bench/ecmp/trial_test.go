// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

// via are equal next hops through 10.0.2.n.
func via(ends ...byte) hops {
	var gateways []netip.Addr
	for _, n := range ends {
		gateways = append(gateways, netip.AddrFrom4([4]byte{10, 0, 2, n}))
	}
	return equalHops(gateways...)
}

// at is what the table becomes so many milliseconds after the cause.
type at struct {
	ms   int
	hops hops
}

func TestJudge(t *testing.T) {
	uneven := via(11, 12)
	uneven[0].Weight = 2
	for name, test := range map[string]struct {
		before, after hops
		events        []at
		delay         int // ms
		wrong         string
		gaps          []time.Duration
	}{
		"at once":        {via(11, 12), via(11), []at{{60, via(11)}}, 60, "", nil},
		"in two steps":   {via(11), via(11, 12, 13), []at{{20, via(11, 12)}, {70, via(11, 12, 13)}}, 70, "", nil},
		"never":          {via(11, 12), via(11), nil, 3000, "in the end via 10.0.2.11", nil},
		"late":           {via(11, 12), via(11), []at{{1001, via(11)}}, 1001, "right only after 1.001s", nil},
		"not for good":   {via(11), via(11, 12), []at{{10, via(11, 12)}, {20, via(11)}, {30, via(11, 12)}}, 30, "", nil},
		"right and back": {via(11), via(11, 12), []at{{10, via(11, 12)}, {20, via(11)}}, 3000, "in the end", nil},
		"uneven":         {via(11), via(11, 12), []at{{10, uneven}}, 3000, "in the end", nil},
		"a stranger":     {via(11), via(11, 12), []at{{5, via(11, 13)}, {10, via(11, 12)}}, 10, "has via 10.0.2.13", nil},
		"a gap": {via(11, 12), via(11), []at{{10, nil}, {12, via(11)}}, 12, "",
			[]time.Duration{2 * time.Millisecond}},
		"gaps of one of two": {via(11, 12), via(11, 12, 13), []at{{10, via(12, 13)}, {11, via(12)}, {14, via(11, 12, 13)}}, 14, "",
			[]time.Duration{4 * time.Millisecond}},
		"a long gap": {via(11, 12), via(11, 12), []at{{10, via(11)}, {2000, via(11, 12)}}, 2000, "lacks a balancer for 1.99s",
			[]time.Duration{1990 * time.Millisecond}},
		"a gap without end": {via(11, 12), via(11, 12), []at{{2500, via(11)}}, 3000, "in the end",
			[]time.Duration{500 * time.Millisecond}},
		"nothing to do": {via(11), via(11), nil, 0, "", nil},
	} {
		tr := newTrial(test.before, test.after, test.events)
		got := tr.judge()
		if got.delay != milli(test.delay) || !strings.Contains(got.wrong, test.wrong) ||
			(test.wrong == "") != (got.wrong == "") || !reflect.DeepEqual(got.gaps, test.gaps) || got.absences != nil {
			t.Errorf("%s: %+v, want %d ms, wrong %q, gaps %v", name, got, test.delay, test.wrong, test.gaps)
		}
	}
}

// newTrial is one of three seconds, at the beginning of which all was right.
func newTrial(before, after hops, events []at) *trial {
	cause := time.Now()
	t := &trial{cause: cause, end: cause.Add(milli(3000)), before: before, after: after, first: before, limit: limit}
	for _, e := range events {
		t.events = append(t.events, routeEvent{at: cause.Add(milli(e.ms)), hops: e.hops})
	}
	return t
}

func milli(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }

// The actual table at the cause counts.
func TestJudgeFirstTable(t *testing.T) {
	for name, test := range map[string]struct {
		first  hops
		events []at
		delay  int // ms
		wrong  string
		gaps   []time.Duration
	}{
		"right already": {via(11), nil, 0, "", nil},
		"lacks one":     {via(12), []at{{30, via(11)}}, 30, "", []time.Duration{milli(30)}},
		"none at all":   {nil, []at{{2000, via(11)}}, 2000, "lacks a balancer for 2s", []time.Duration{milli(2000)}},
		"a stranger":    {via(11, 14), []at{{30, via(11)}}, 30, "has via 10.0.2.14", nil},
	} {
		tr := newTrial(via(11, 12), via(11), test.events)
		tr.first = test.first
		got := tr.judge()
		if got.delay != milli(test.delay) || !strings.Contains(got.wrong, test.wrong) ||
			(test.wrong == "") != (got.wrong == "") || !reflect.DeepEqual(got.gaps, test.gaps) {
			t.Errorf("%s: %+v, want %d ms, wrong %q, gaps %v", name, got, test.delay, test.wrong, test.gaps)
		}
	}
}

// The absence of the subject is recorded but isn't wrong; the others have to stay.
func TestJudgeSubject(t *testing.T) {
	all := via(11, 12, 13)
	for name, test := range map[string]struct {
		events         []at
		gaps, absences []time.Duration
		wrong          string
	}{
		"stays":              {nil, nil, nil, ""},
		"goes":               {[]at{{300, via(11, 12)}, {500, all}}, nil, []time.Duration{milli(200)}, ""},
		"goes twice":         {[]at{{1, via(11, 12)}, {3, all}, {10, via(11, 12)}, {14, all}}, nil, []time.Duration{milli(2), milli(4)}, ""},
		"takes another away": {[]at{{300, via(11)}, {500, all}}, []time.Duration{milli(200)}, []time.Duration{milli(200)}, ""},
		"never returns":      {[]at{{300, via(11, 12)}}, nil, []time.Duration{milli(2700)}, "in the end"},
	} {
		tr := newTrial(all, all, test.events)
		tr.subject = via(13)[0].Gateway
		got := tr.judge()
		if !reflect.DeepEqual(got.gaps, test.gaps) || !reflect.DeepEqual(got.absences, test.absences) ||
			!strings.Contains(got.wrong, test.wrong) || (test.wrong == "") != (got.wrong == "") {
			t.Errorf("%s: %+v, want gaps %v, absences %v, wrong %q", name, got, test.gaps, test.absences, test.wrong)
		}
	}
}
