// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"time"

	"fairlead.io/fairlead/lab/netlab"
)

// Stage is the time between Setup and Remove. Remove is called whenever Setup was, also if that
// failed or the bench was interrupted. Nil functions do nothing.
type Stage struct {
	Setup, Remove func(context.Context) error
}

// removeTimeout bounds a Remove.
const removeTimeout = 5 * time.Minute

// with calls use within the stage. Errors of the stage itself begin with its name.
func (s Stage) with(ctx context.Context, name string, use func() error) (err error) {
	named := func(stage func(context.Context) error, ctx context.Context) error {
		if stage == nil {
			return nil
		}
		if err := stage(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		err = errors.Join(err, named(s.Remove, ctx))
	}()
	if err := named(s.Setup, ctx); err != nil {
		return err
	}
	return use()
}

// Bench is a list of measurements, of which each returns a T. A T is kept as JSON in reports that
// aren't complete.
type Bench[T any] struct {
	Stage
	Name   string
	Groups []Group[T]
	// Report adds the findings to a report; cells may be missing.
	Report func(r *Report, found Found[T]) error
}

// Group is cells that are compared with each other: each round measures all of them once, in
// reverse order in every second one, so that no cell always follows the same other one.
type Group[T any] struct {
	Name   string
	Rounds int
	Cells  []Cell[T]
}

// Cell is a measurement under the same conditions. All cells of a group are set up before the
// first one is measured.
type Cell[T any] struct {
	Stage
	// Name is unique in the bench.
	Name string
	// Programs have to be installed.
	Programs []string
	// Reference is set if a filter that selects another cell of the group includes this one.
	Reference bool
	// Measure returns the findings of one round.
	Measure func(context.Context) (T, error)
}

// Single returns the group of a cell that is compared with no other one at the same time.
func Single[T any](c Cell[T]) Group[T] {
	return Group[T]{Name: c.Name, Rounds: 1, Cells: []Cell[T]{c}}
}

// Parts is the Report of a bench whose cells return parts of its report.
func Parts(groups []Group[Report]) func(*Report, Found[Report]) error {
	return func(r *Report, found Found[Report]) error {
		for _, g := range groups {
			for _, c := range g.Cells {
				for _, part := range found[c.Name] {
					r.Results = append(r.Results, part.Results...)
					r.Verdicts = append(r.Verdicts, part.Verdicts...)
					maps.Copy(r.Ratios, part.Ratios)
				}
			}
		}
		return nil
	}
}

// Found are the findings of cells by their names, in the order of rounds.
type Found[T any] map[string][]T

// Unavailable is the error of a bench that can't run here, for example without a program or a
// cluster. Nothing has been built.
type Unavailable struct{ Err error }

// Unwrap returns the reason.
func (u Unavailable) Unwrap() error { return u.Err }

// Error implements error.
func (u Unavailable) Error() string { return u.Err.Error() }

// run is a running bench.
type run[T any] struct {
	Config
	bench Bench[T]
	found Found[T]
	// done and steps count measurements and set-ups of cells.
	done, steps int
	started     time.Time
}

// Run measures a bench and removes all that it made. If it fails or ctx ends, it also returns
// the report of the cells measured so far, unless there are none.
func Run[T any](ctx context.Context, cfg Config, b Bench[T]) (*Report, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("bench %s needs root", b.Name)
	}
	return measure(ctx, cfg, b)
}

func measure[T any](ctx context.Context, cfg Config, b Bench[T]) (*Report, error) {
	all := b.Groups
	var err error
	if b.Groups, err = selected(all, cfg.Only); err != nil {
		return nil, err
	}
	if err := netlab.CheckPrograms(programs(b.Groups)...); err != nil {
		return nil, Unavailable{Err: err}
	}
	report, err := NewReport(b.Name, cfg.Commit, cfg.Quick)
	if err != nil {
		return nil, err
	}
	r := &run[T]{Config: cfg, bench: b, found: Found[T]{}, started: time.Now()}
	if cfg.Earlier != nil {
		if err := r.resume(report); err != nil {
			return nil, fmt.Errorf("resume: %w", err)
		}
	}
	err = r.measure(ctx)
	if err != nil && len(r.found) == 0 {
		return nil, err
	}
	if slices.ContainsFunc(all, func(g Group[T]) bool { return !g.finished(r.found) }) {
		cells, failed := json.Marshal(r.found)
		report.Incomplete, report.Cells, err = true, cells, errors.Join(err, failed)
	}
	return report, errors.Join(err, b.Report(report, r.found))
}

// programs returns the programs of all cells.
func programs[T any](groups []Group[T]) (all []string) {
	for _, g := range groups {
		for _, c := range g.Cells {
			all = append(all, c.Programs...)
		}
	}
	return all
}

// selected returns the groups with the cells that a filter selects, all if it is nil, and their
// references.
func selected[T any](groups []Group[T], only *regexp.Regexp) ([]Group[T], error) {
	if only == nil {
		return groups, nil
	}
	var left []Group[T]
	for _, g := range groups {
		matches := func(c Cell[T]) bool { return only.MatchString(c.Name) }
		if slices.ContainsFunc(g.Cells, matches) {
			g.Cells = slices.DeleteFunc(slices.Clone(g.Cells), func(c Cell[T]) bool { return !c.Reference && !matches(c) })
			left = append(left, g)
		}
	}
	if len(left) == 0 {
		return nil, fmt.Errorf("no cell matches %q; one is called %q", only, groups[0].Cells[0].Name)
	}
	return left, nil
}

// resume takes the findings of an earlier run, and leaves the groups to measure of which not all
// cells are finished.
func (r *run[T]) resume(report *Report) error {
	e := r.Earlier
	if !e.Incomplete {
		return errors.New("the report is complete")
	}
	if e.Bench != report.Bench || e.Commit != report.Commit || e.Quick != report.Quick || e.Kernel != report.Kernel || e.CPU != report.CPU {
		return fmt.Errorf("the report is of bench %s, commit %s, quick %v, kernel %s, %s", e.Bench, e.Commit, e.Quick, e.Kernel, e.CPU)
	}
	if err := json.Unmarshal(e.Cells, &r.found); err != nil {
		return fmt.Errorf("cells: %w", err)
	}
	report.Started = e.Started
	r.bench.Groups = slices.DeleteFunc(r.bench.Groups, func(g Group[T]) bool { return g.finished(r.found) })
	for _, g := range r.bench.Groups {
		g.keep(r.found, 0)
	}
	return nil
}

// finished reports whether all rounds of all cells have been measured.
func (g Group[T]) finished(found Found[T]) bool {
	return !slices.ContainsFunc(g.Cells, func(c Cell[T]) bool { return len(found[c.Name]) < g.Rounds })
}

// keep leaves the findings of the first rounds.
func (g Group[T]) keep(found Found[T], rounds int) {
	for _, c := range g.Cells {
		if rounds == 0 {
			delete(found, c.Name)
		} else {
			found[c.Name] = found[c.Name][:rounds]
		}
	}
}

func (r *run[T]) measure(ctx context.Context) error {
	for _, g := range r.bench.Groups {
		r.steps += len(g.Cells) * (1 + g.Rounds)
	}
	if r.steps == 0 {
		return nil
	}
	return r.bench.with(ctx, r.bench.Name, func() error {
		for _, g := range r.bench.Groups {
			if err := r.group(ctx, g); err != nil {
				return err
			}
		}
		return nil
	})
}

// group measures a group. If it is interrupted, the rounds stay that all cells have had.
func (r *run[T]) group(ctx context.Context, g Group[T]) error {
	r.progress("%s: setting up", g.Name)
	err := r.cells(ctx, g, g.Cells)
	if err == nil {
		return nil
	}
	rounds := 0
	if ctx.Err() != nil {
		rounds = g.Rounds
		for _, c := range g.Cells {
			rounds = min(rounds, len(r.found[c.Name]))
		}
	}
	g.keep(r.found, rounds)
	return err
}

// cells measures the group within the stages of these cells.
func (r *run[T]) cells(ctx context.Context, g Group[T], left []Cell[T]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(left) == 0 {
		return r.rounds(ctx, g)
	}
	return left[0].with(ctx, left[0].Name, func() error {
		r.done++
		return r.cells(ctx, g, left[1:])
	})
}

func (r *run[T]) rounds(ctx context.Context, g Group[T]) error {
	order := slices.Clone(g.Cells)
	for n := range g.Rounds {
		r.progress("%s: round %d of %d", g.Name, n+1, g.Rounds)
		for _, c := range order {
			if err := ctx.Err(); err != nil {
				return err
			}
			seen, err := c.Measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			r.found[c.Name] = append(r.found[c.Name], seen)
			r.done++
		}
		slices.Reverse(order)
	}
	return nil
}

// progress reports a step and the time left.
func (r *run[T]) progress(format string, args ...any) {
	r.Log("%s; %s", fmt.Sprintf(format, args...), timeLeft(time.Since(r.started), r.done, r.steps))
}

// timeLeft estimates the time of the steps to come by the time of those that are done.
func timeLeft(passed time.Duration, done, steps int) string {
	if done == 0 {
		return fmt.Sprintf("%d steps", steps)
	}
	left := passed * time.Duration(steps-done) / time.Duration(done)
	return fmt.Sprintf("%d of %d steps, about %s left", done, steps, left.Round(time.Second))
}
