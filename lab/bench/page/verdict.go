// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// state is the verdict on a claim.
type state string

const (
	holds   state = "holds"
	fails   state = "doesn't hold"
	notHere state = "not here"
	notYet  state = "not measured yet"
	// nothing is the verdict on an item without claims.
	nothing state = "no measurement"
)

// states are all verdicts in the order of the page.
var states = []state{holds, fails, notHere, notYet, nothing}

// Class is the name of the state in the style sheet, and Sign shows it without colour.
func (s state) Class() string {
	return [...]string{"holds", "fails", "nothere", "notyet", "nothing"}[slices.Index(states, s)]
}

func (s state) Sign() string {
	return [...]string{"✓", "✗", "∅", "…", "–"}[slices.Index(states, s)]
}

// value is a measured number with the smallest and the largest round.
type value struct {
	number, low, high float64
	unit              string
}

func exactly(number float64, unit string) value { return value{number, number, number, unit} }

// outcome is the verdict on one claim.
type outcome struct {
	*claim
	State state
	// Value is nil unless the claim was measured.
	Value *value
	// Why explains a missing value.
	Why string
}

// judge compares the claim's field in the reports with its bounds.
func (c *claim) judge(reports reports) outcome {
	o := outcome{claim: c, State: notYet, Why: c.NotYet}
	switch {
	case c.NotHere != "":
		o.State, o.Why = notHere, c.NotHere
	case c.Measure != nil:
		v, err := c.Measure.read(reports)
		if err != nil {
			o.Why = err.Error()
			break
		}
		o.Value, o.State = &v, holds
		if c.AtLeast != nil && v.number < *c.AtLeast || c.AtMost != nil && v.number > *c.AtMost {
			o.State = fails
		}
	}
	return o
}

// read returns the number that m selects.
func (m *measure) read(reports reports) (value, error) {
	r, ok := reports[m.Report]
	if !ok {
		return value{}, fmt.Errorf("there is no report %s", m.Report)
	}
	if m.Ratio != "" {
		if ratio, ok := r.Ratios[m.Ratio]; ok {
			return exactly(ratio, times), nil
		}
		return value{}, fmt.Errorf("report %s has no ratio %s", m.Report, m.Ratio)
	}
	if m.Verdict != "" {
		for _, v := range r.Verdicts {
			if v.Claim == m.Verdict {
				return exactly(v.Value, m.Unit), nil
			}
		}
		return value{}, fmt.Errorf("report %s has no verdict %q", m.Report, m.Verdict)
	}
	v, err := m.results(r, m.Result, m.Where)
	if err != nil || m.Over == nil && m.OverResult == "" {
		return v, err
	}
	labels, name := map[string]string{}, cmp.Or(m.OverResult, m.Result)
	maps.Copy(labels, m.Where)
	maps.Copy(labels, m.Over)
	divisor, err := m.results(r, name, labels)
	switch {
	case err != nil:
		return v, err
	case divisor.number == 0:
		return v, fmt.Errorf("report %s: %s is 0", m.Report, name)
	case m.OverResult != "": // another quantity, whose extremes belong to other moments
		return exactly(v.number/divisor.number, times), nil
	}
	return value{v.number / divisor.number, v.low / divisor.high, v.high / divisor.low, times}, nil
}

// results joins the values of all results of a name that have the labels.
func (m *measure) results(r *report, name string, labels map[string]string) (value, error) {
	found := r.find(name, labels)
	if n := len(found); n == 0 || n > 1 && m.Pick == "" {
		return value{}, fmt.Errorf("report %s has %d results %s", m.Report, n, name)
	}
	joined := value{unit: found[0].Unit, low: found[0].Min}
	for _, result := range found {
		number := result.Median
		switch {
		case m.Of == "max":
			number = result.Max
		case m.Of != "" && result.Distribution == nil:
			return value{}, fmt.Errorf("report %s: %s has no %s", m.Report, name, m.Of)
		case m.Of != "":
			number = result.Distribution.P99
		}
		if m.Pick == "sum" {
			joined = exactly(joined.number+number, joined.unit)
			continue
		}
		joined.number = max(joined.number, number)
		joined.low, joined.high = min(joined.low, result.Min), max(joined.high, result.Max)
	}
	return joined, nil
}

// times is the unit of ratios.
const times = "×"

// String is the number with its unit.
func (v value) String() string {
	if v.unit == "" || v.unit == times {
		return digits(v.number) + v.unit
	}
	return digits(v.number) + " " + v.unit
}

// Range is the smallest and the largest round, if they differ.
func (v value) Range() string {
	if digits(v.low) == digits(v.high) {
		return ""
	}
	return digits(v.low) + " – " + digits(v.high)
}

// digits writes a number with three significant digits, and large ones whole in groups.
func digits(v float64) string {
	const million, thousand = 1e6, 999.5 // which 'g' would write as 1e+03
	switch size := math.Abs(v); {
	case size >= million:
		return strconv.FormatFloat(v/million, 'f', 2, 64) + " M"
	case size >= thousand:
		return group(strconv.FormatFloat(v, 'f', 0, 64))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// group separates the thousands of a whole number; other texts stay as they are.
func group(text string) string {
	if _, err := strconv.Atoi(text); err != nil || len(text) < 4 {
		return text
	}
	return group(text[:len(text)-3]) + "," + text[len(text)-3:]
}
