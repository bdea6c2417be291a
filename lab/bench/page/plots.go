// SPDX-License-Identifier: Apache-2.0

package page

import (
	_ "embed" // for plots.yaml
	"fmt"
	"maps"
	"slices"

	"fairlead.io/fairlead/lab/bench"
)

//go:embed plots.yaml
var plotsYAML []byte

// plots is plots.yaml.
type plots struct {
	// Shared are values of several plots.
	Shared map[string]any `yaml:"shared"`
	Plots  []*chart       `yaml:"plots"`
}

// drawn computes the points and returns the plots that have some of a report.
func (p *plots) drawn(reports reports, papers *catalogue) []*chart {
	var drawn []*chart
	for _, ch := range p.Plots {
		lines := 0
		for i := range ch.Lines {
			l := &ch.Lines[i]
			l.compute(ch, reports, papers)
			if l.Paper == "" {
				lines += len(l.drawn)
			}
		}
		ch.Lines = slices.DeleteFunc(ch.Lines, func(l line) bool { return len(l.drawn) == 0 })
		if lines > 0 {
			ch.fit()
			drawn = append(drawn, ch)
		}
	}
	return drawn
}

// compute reads the line's points from reports or papers.
func (l *line) compute(ch *chart, reports reports, papers *catalogue) {
	switch {
	case l.Paper != "":
		l.quote(papers)
	case l.Distribution, l.Timeline:
		l.follow(reports)
	}
	for i, name := range slices.Concat(ch.X.Names, ch.Rows) {
		m := l.Points[name]
		if l.By != "" {
			one := *l.Measure
			one.Where = maps.Clone(one.Where)
			one.Where[l.By] = name
			m = &one
		}
		if m == nil {
			continue
		}
		if v, err := m.read(reports); err == nil {
			l.add(float64(i), v, max(l.Unit, 1))
		}
	}
}

func (l *line) add(place float64, v value, unit float64) {
	l.drawn = append(l.drawn, point{place, v.number / unit, v.low / unit, v.high / unit})
}

// quote takes the numbers of a paper.
func (l *line) quote(papers *catalogue) {
	numbers, divisors := papers.series(l.Paper, l.Series), papers.series(l.Paper, l.Over)
	if numbers == nil {
		return
	}
	for i, v := range numbers.Values {
		if divisors != nil {
			v /= divisors.Values[i]
		}
		l.add(float64(i), exactly(v, ""), 1)
	}
}

// follow adds the parts of one result.
func (l *line) follow(reports reports) {
	r := reports[l.Measure.Report]
	if r == nil {
		return
	}
	found := r.find(l.Measure.Result, l.Measure.Where)
	switch {
	case len(found) != 1:
	case l.Timeline:
		for second, n := range found[0].Timeline {
			l.add(float64(second), exactly(float64(n), ""), 1)
		}
	case found[0].Distribution != nil:
		l.distribute(found[0])
	}
}

// distribute adds the share of measurements up to each value.
func (l *line) distribute(r *bench.Result) {
	sum, count := 0.0, 0.0
	for _, b := range r.Distribution.Buckets {
		count += float64(b.Count)
	}
	l.Name = fmt.Sprintf("%s (%.0f)", l.Name, count)
	share := func(x float64) { l.add(x, exactly(sum/count, ""), 1) }
	share(r.Min)
	for _, b := range r.Distribution.Buckets {
		sum += float64(b.Count)
		share(min(b.To, r.Max))
	}
}

// fit sets the bounds of axes that have none. Lower ends of error bars don't count, as a
// logarithmic axis has no place for 0.
func (ch *chart) fit() {
	var places, numbers []float64
	for _, l := range ch.Lines {
		for _, p := range l.drawn {
			places, numbers = append(places, p.place), append(numbers, p.number, p.high)
			if ch.Bars {
				numbers = append(numbers, p.high*1.12) // the text behind
			}
		}
	}
	if ch.Rows != nil {
		places = numbers
	}
	for _, m := range ch.Marks {
		if ch.across() {
			places = append(places, m.At)
		} else {
			numbers = append(numbers, m.At)
		}
	}
	ch.X.fit(places)
	ch.Y.fit(numbers)
}
