// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Report is what one bench found: the one JSON object of DESIGN.md §11.
type Report struct {
	Bench   string    `json:"bench"`
	Commit  string    `json:"commit"`
	Kernel  string    `json:"kernel"`
	CPU     string    `json:"cpu"`
	Started time.Time `json:"started"`
	// Quick is set if the bench was cut short to stay under a minute.
	Quick    bool               `json:"quick"`
	Results  []Result           `json:"results"`
	Ratios   map[string]float64 `json:"ratios"`
	Verdicts []Verdict          `json:"verdicts"`
}

// Result is one quantity, measured once or several times.
type Result struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Runs is the number of measurements.
	Runs int `json:"runs"`
	// Labels say under which conditions it was measured.
	Labels map[string]string `json:"labels"`
	// Distribution is that of many measurements; nil: it isn't told.
	Distribution *Distribution `json:"distribution,omitempty"`
}

// NewReport is an empty report about this machine, started now. The commit is
// that of the binary that measures.
func NewReport(bench, commit string, quick bool) (*Report, error) {
	kernel, cpu, err := machine()
	if err != nil {
		return nil, err
	}
	return &Report{
		Bench: bench, Commit: commit, Kernel: kernel, CPU: cpu,
		Started: time.Now().UTC().Truncate(time.Second), Quick: quick,
		Results: []Result{}, Ratios: map[string]float64{}, Verdicts: []Verdict{},
	}, nil
}

// Add reports the measurements of one quantity; labels may be nil. Without a
// measurement nothing is added.
func (r *Report) Add(name, unit string, runs Runs, labels map[string]string) {
	if len(runs) == 0 {
		return
	}
	if labels == nil {
		labels = map[string]string{}
	}
	low, high := runs.Bounds()
	r.Results = append(r.Results, Result{
		Name: name, Unit: unit, Median: runs.Median(), Min: low, Max: high, Runs: len(runs), Labels: labels,
	})
}

// AddRatio reports how many times b fits into a: the median over the rounds, in
// each of which both sides were measured one after the other. It returns the
// ratio.
func (r *Report) AddRatio(name string, a, b Runs) (float64, error) {
	ratio, err := Ratio(a, b)
	if err != nil {
		return 0, fmt.Errorf("ratio %s: %w", name, err)
	}
	r.Ratios[name] = ratio
	return ratio, nil
}

// Judge compares a value with what is claimed. The source says where the claim
// comes from, for example "DESIGN.md §10".
func (r *Report) Judge(claim, source string, target Target, value float64) {
	r.Verdicts = append(r.Verdicts, Verdict{
		Claim: claim, Source: source, Target: target.String(), Value: value, Holds: target.holds(value),
	})
}

// WriteJSON writes the report as one indented JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
