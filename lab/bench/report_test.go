// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestMedianAndBounds(t *testing.T) {
	for _, c := range []struct {
		runs              Runs
		median, low, high float64
	}{
		{nil, 0, 0, 0},
		{Runs{7}, 7, 7, 7},
		{Runs{9, 1, 5}, 5, 1, 9},
		{Runs{4, 1, 3, 2}, 2.5, 1, 4},
	} {
		rounds := slices.Clone(c.runs)
		low, high := c.runs.Bounds()
		if m := c.runs.Median(); m != c.median || low != c.low || high != c.high || !slices.Equal(c.runs, rounds) {
			t.Errorf("%v: median %v, bounds %v to %v, want %v, %v to %v; rounds are now %v", rounds, m, low, high, c.median, c.low, c.high, c.runs)
		}
	}
}

func TestPercentile(t *testing.T) {
	thousand := make(Runs, 1000)
	for i := range thousand {
		thousand[len(thousand)-1-i] = float64(i + 1)
	}
	for _, c := range []struct {
		runs Runs
		p    float64
		want float64
	}{{nil, 99, 0}, {Runs{7}, 1, 7}, {Runs{9, 1, 5}, 50, 5}, {thousand, 99, 990}, {thousand, 99.9, 999}, {thousand, 100, 1000}} {
		if got := c.runs.Percentile(c.p); got != c.want {
			t.Errorf("percentile %g of %d: %v, want %v", c.p, len(c.runs), got, c.want)
		}
	}
}

// A round in which the whole machine was ten times slower changes no ratio.
func TestRatioComparesWithinARound(t *testing.T) {
	ratio, err := Ratio(Runs{90, 9, 90, 9, 90}, Runs{100, 10, 100, 10, 100})
	if err != nil || ratio != 0.9 {
		t.Errorf("ratio %v, %v, want 0.9", ratio, err)
	}
}

func TestRatioRefuses(t *testing.T) {
	for name, sides := range map[string][2]Runs{
		"none":       {nil, nil},
		"unequal":    {Runs{1, 2}, Runs{1}},
		"of nothing": {Runs{1}, Runs{0}},
	} {
		if ratio, err := Ratio(sides[0], sides[1]); err == nil {
			t.Errorf("%s: no error but %v", name, ratio)
		}
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		target Target
		value  float64
		text   string
		holds  bool
	}{
		{AtLeast(0.9), 0.9, ">= 0.9", true},
		{AtLeast(0.9), 0.89, ">= 0.9", false},
		{AtMost(0.25), 0.25, "<= 0.25", true},
		{AtMost(0.25), 0.26, "<= 0.25", false},
	} {
		if got := c.target.holds(c.value); got != c.holds || c.target.String() != c.text {
			t.Errorf("%s of %v: %v, want %s: %v", c.target, c.value, got, c.text, c.holds)
		}
	}
}

func filledReport(t *testing.T) *Report {
	t.Helper()
	r, err := NewReport("forward", "abc123", true)
	if err != nil {
		t.Fatal(err)
	}
	r.Add("throughput", "packets/s", Runs{3, 1, 2}, map[string]string{"frame": "64", "device": "l2dsr"})
	r.Add("nothing", "packets/s", nil, nil)
	err = r.Compare(
		Comparison{Name: "l2dsr_over_reflector_64", A: Runs{8}, B: Runs{10}, Claim: "as fast as a reflector", Target: AtLeast(0.9)},
		Comparison{Name: "without_a_side", A: Runs{8}, Claim: "unknown", Target: AtLeast(1)},
		Comparison{Name: "without_claim", A: Runs{8}, B: Runs{4}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The names are a contract with the programs that read reports.
func TestJSONShape(t *testing.T) {
	var out bytes.Buffer
	if err := filledReport(t).WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(out.Bytes(), &object); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, object, "bench", "commit", "cpu", "kernel", "measured", "quick", "ratios", "results", "started", "verdicts")
	results := object["results"].([]any)
	if len(results) != 1 {
		t.Fatalf("%d results, want the one that was measured", len(results))
	}
	wantKeys(t, results[0], "labels", "max", "median", "min", "name", "runs", "unit")
	verdict := object["verdicts"].([]any)[0].(map[string]any)
	wantKeys(t, verdict, "claim", "holds", "source", "target", "value")
	if verdict["holds"] != false || verdict["target"] != ">= 0.9" {
		t.Errorf("verdict %v, want a target of >= 0.9 that doesn't hold", verdict)
	}
	if object["kernel"] == "" || object["cpu"] == "" {
		t.Errorf("machine is not named: %v, %v", object["kernel"], object["cpu"])
	}
}

func TestEmptyReportHasNoNulls(t *testing.T) {
	r, err := NewReport("packet", "abc123", false)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "null") {
		t.Errorf("empty report:\n%s", out.String())
	}
}

func wantKeys(t *testing.T, object any, want ...string) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(object.(map[string]any))); !slices.Equal(got, want) {
		t.Errorf("keys %v, want %v", got, want)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := filledReport(t).WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"forward", "commit abc123, quick", "device=l2dsr frame=64", "l2dsr_over_reflector_64  0.8", "NO     0.8    >= 0.9  as fast as a reflector"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("table lacks %q:\n%s", want, out.String())
		}
	}
}

func TestModelName(t *testing.T) {
	if got := modelName("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t: x\n"); got != "Some CPU @ 2 GHz" {
		t.Errorf("model name %q", got)
	}
	if got := modelName("processor\t: 0\n"); got != "" {
		t.Errorf("model name %q, want none", got)
	}
}

// One result a line: reports in the tree have readable differences.
func TestJSONHasOneLinePerResult(t *testing.T) {
	r := filledReport(t)
	r.Add("cost", "µs/probe", Runs{1}, map[string]string{"check": "<&>"})
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 13 || !strings.HasPrefix(lines[9], `{"name":"cost"`) || !strings.Contains(lines[9], "<&>") {
		t.Errorf("%d lines:\n%s", len(lines), out.String())
	}
	var read Report
	if err := json.Unmarshal(out.Bytes(), &read); err != nil || !reflect.DeepEqual(&read, r) {
		t.Errorf("reads as %+v, %v, want %+v", read, err, r)
	}
}
