// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// recorder is a bench of fake cells, whose findings are the numbers of their rounds.
type recorder struct {
	// did has the steps in their order.
	did []string
	// at is called before each measurement, with the steps so far.
	at func(did string) error
	// found are the findings that the report was made of.
	found Found[int]
}

func (r *recorder) stage(name string) Stage {
	add := func(step string) func(context.Context) error {
		return func(ctx context.Context) error {
			r.did = append(r.did, step+name)
			return ctx.Err()
		}
	}
	return Stage{Setup: add("+"), Remove: add("-")}
}

// group has a cell for each letter.
func (r *recorder) group(rounds int, letters string) Group[int] {
	g := Group[int]{Name: letters, Rounds: rounds}
	for name := range strings.SplitSeq(letters, "") {
		round := 0
		g.Cells = append(g.Cells, Cell[int]{Name: name, Stage: r.stage(name), Measure: func(context.Context) (int, error) {
			r.did = append(r.did, name)
			round++
			if r.at == nil {
				return round, nil
			}
			return round, r.at(strings.Join(r.did, " "))
		}})
	}
	return g
}

// run measures groups of three rounds and two.
func (r *recorder) run(ctx context.Context, cfg Config) (*Report, error) {
	b := Bench[int]{
		Name: "fake", Stage: r.stage("fake"), Groups: []Group[int]{r.group(3, "abc"), r.group(2, "de")},
		Report: func(_ *Report, found Found[int]) error {
			r.found = found
			return nil
		},
	}
	b.Groups[0].Cells[0].Reference = true
	return measure(ctx, cfg, b)
}

func (r *recorder) want(t *testing.T, did string, found Found[int]) {
	t.Helper()
	if got := strings.Join(r.did, " "); got != did {
		t.Errorf("steps\n%s, want\n%s", got, did)
	}
	if !reflect.DeepEqual(r.found, found) {
		t.Errorf("found %v, want %v", r.found, found)
	}
}

func TestCellsAlternate(t *testing.T) {
	var r recorder
	report, err := r.run(t.Context(), Config{})
	if err != nil || report.Incomplete || report.Cells != nil {
		t.Fatalf("report %+v, error %v", report, err)
	}
	r.want(t, "+fake +a +b +c a b c c b a a b c -c -b -a +d +e d e e d -e -d -fake",
		Found[int]{"a": {1, 2, 3}, "b": {1, 2, 3}, "c": {1, 2, 3}, "d": {1, 2}, "e": {1, 2}})
}

// TestInterrupt checks that everything is removed, and that the rounds are reported that all cells
// of a group have had.
func TestInterrupt(t *testing.T) {
	for at, want := range map[string]Found[int]{
		"+fake +a":               nil,
		"+fake +a +b +c a":       nil,
		"+fake +a +b +c a b c c": {"a": {1}, "b": {1}, "c": {1}},
		"+fake +a +b +c a b c c b a a b c -c -b -a +d +e d": {"a": {1, 2, 3}, "b": {1, 2, 3}, "c": {1, 2, 3}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var r recorder
		r.at = func(did string) error {
			if did == at {
				cancel()
			}
			return ctx.Err()
		}
		if at == "+fake +a" { // in a Setup
			cancel()
			at = "+fake"
		}
		report, err := r.run(ctx, Config{})
		if !errors.Is(err, context.Canceled) || (report != nil) != (want != nil) || report != nil && !report.Incomplete {
			t.Errorf("interrupted at %q: report %+v, error %v", at, report, err)
		}
		did := at
		for _, step := range slices.Backward(strings.Fields(at)) {
			if strings.HasPrefix(step, "+") && !strings.Contains(at, "-"+step[1:]) {
				did += " -" + step[1:]
			}
		}
		r.want(t, did, want)
	}
}

// A cell that fails spoils its group only.
func TestFailure(t *testing.T) {
	r := recorder{at: func(did string) error {
		if strings.HasSuffix(did, " d e") {
			return errors.New("broken")
		}
		return nil
	}}
	report, err := r.run(t.Context(), Config{})
	if err == nil || err.Error() != "e: broken" || !report.Incomplete {
		t.Errorf("report %+v, error %v", report, err)
	}
	r.want(t, "+fake +a +b +c a b c c b a a b c -c -b -a +d +e d e -e -d -fake",
		Found[int]{"a": {1, 2, 3}, "b": {1, 2, 3}, "c": {1, 2, 3}})
}

// A report that was written and read again is the beginning of another run, which measures the
// groups that weren't finished.
func TestResume(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	first := recorder{at: func(did string) error {
		if strings.HasSuffix(did, " d e e") {
			cancel()
		}
		return ctx.Err()
	}}
	report, err := first.run(ctx, Config{Commit: "abc"})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var text bytes.Buffer
	var earlier Report
	if err := errors.Join(report.WriteJSON(&text), json.Unmarshal(text.Bytes(), &earlier)); err != nil {
		t.Fatal(err)
	}
	earlier.Started = earlier.Started.Add(-time.Hour)
	var second recorder
	all, err := second.run(t.Context(), Config{Commit: "abc", Earlier: &earlier})
	if err != nil || all.Incomplete || !all.Started.Equal(earlier.Started) {
		t.Fatalf("report %+v, error %v", all, err)
	}
	second.want(t, "+fake +d +e d e e d -e -d -fake",
		Found[int]{"a": {1, 2, 3}, "b": {1, 2, 3}, "c": {1, 2, 3}, "d": {1, 2}, "e": {1, 2}})
	for want, cfg := range map[string]Config{
		"resume: the report is complete":                    {Commit: "abc", Earlier: all},
		"resume: the report is of bench fake, commit abc, ": {Commit: "def", Earlier: &earlier},
		"quick false": {Commit: "abc", Earlier: &earlier, Quick: true},
	} {
		var r recorder
		if _, err := r.run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) || r.did != nil {
			t.Errorf("error %v, want %q; steps %v", err, want, r.did)
		}
	}
}

// TestFilter checks that references are measured with the cells that a filter selects, and that
// the rest can be measured later.
func TestFilter(t *testing.T) {
	var r recorder
	report, err := r.run(t.Context(), Config{Only: regexp.MustCompile("[bd]")})
	if err != nil || !report.Incomplete {
		t.Fatalf("report %+v, error %v", report, err)
	}
	r.want(t, "+fake +a +b a b b a a b -b -a +d d d -d -fake", Found[int]{"a": {1, 2, 3}, "b": {1, 2, 3}, "d": {1, 2}})
	var second recorder
	if report, err = second.run(t.Context(), Config{Only: regexp.MustCompile("b|e"), Earlier: report}); err != nil || !report.Incomplete {
		t.Fatalf("report %+v, error %v", report, err)
	}
	second.want(t, "+fake +e e e -e -fake", Found[int]{"a": {1, 2, 3}, "b": {1, 2, 3}, "d": {1, 2}, "e": {1, 2}})
	if _, err := second.run(t.Context(), Config{Only: regexp.MustCompile("z")}); err == nil || err.Error() != `no cell matches "z"; one is called "a"` {
		t.Errorf("error %v", err)
	}
}

func TestProgramsAreChecked(t *testing.T) {
	missing := Single(Cell[int]{Name: "a", Programs: []string{"no-such-program"}})
	_, err := measure(t.Context(), Config{}, Bench[int]{Name: "fake", Groups: []Group[int]{missing}})
	if _, unavailable := errors.AsType[Unavailable](err); !unavailable || !strings.Contains(err.Error(), "not installed: no-such-program") {
		t.Errorf("error %v", err)
	}
}

func TestTimeLeft(t *testing.T) {
	for _, c := range []struct {
		passed      time.Duration
		done, steps int
		want        string
	}{
		{time.Second, 0, 12, "12 steps"},
		{time.Minute, 3, 12, "3 of 12 steps, about 3m0s left"},
		{time.Minute, 12, 12, "12 of 12 steps, about 0s left"},
	} {
		if got := timeLeft(c.passed, c.done, c.steps); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
