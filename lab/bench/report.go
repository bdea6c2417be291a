// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// Report is the result of one bench. Its JSON form is read by other programs.
type Report struct {
	Bench   string    `json:"bench"`
	Commit  string    `json:"commit"`
	Kernel  string    `json:"kernel"`
	CPU     string    `json:"cpu"`
	Started time.Time `json:"started"`
	// Quick is set if the bench was cut short.
	Quick bool `json:"quick"`
	// Incomplete is set if not all cells of the bench were measured. Cells are then the findings
	// of those that were, by their names, which a later run continues.
	Incomplete bool            `json:"incomplete,omitempty"`
	Cells      json.RawMessage `json:"cells,omitempty"`
	// Measured are the digests of the measured code, if they are known (see Digests).
	Measured map[string]string  `json:"measured"`
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
	// Labels are the conditions of the measurement.
	Labels map[string]string `json:"labels"`
	// Distribution is set for quantities with many measurements.
	Distribution *Distribution `json:"distribution,omitempty"`
	// Timeline has the counts of each second of a phase, if they are known.
	Timeline Timeline `json:"timeline,omitempty"`
}

// NewReport returns an empty report about this machine, started now. The commit is
// the measuring binary's.
func NewReport(bench, commit string, quick bool) (*Report, error) {
	kernel, cpu, err := machine()
	if err != nil {
		return nil, err
	}
	return &Report{
		Bench: bench, Commit: commit, Kernel: kernel, CPU: cpu,
		Started: time.Now().UTC().Truncate(time.Second), Quick: quick,
		Measured: map[string]string{}, Results: []Result{}, Ratios: map[string]float64{}, Verdicts: []Verdict{},
	}, nil
}

// Add adds the measurements of one quantity, if there are any; labels may be nil.
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

// Judge compares a value with a claim's target. The source says where the claim
// comes from, for example Documented.
func (r *Report) Judge(claim, source string, target Target, value float64) {
	r.Verdicts = append(r.Verdicts, Verdict{
		Claim: claim, Source: source, Target: target.String(), Value: value, Holds: target.holds(value),
	})
}

// Comparison is the ratio of A to B: the median over the rounds, in each of which both sides were
// measured one after the other.
type Comparison struct {
	Name string
	A, B Runs
	// Claim is about the ratio; empty: there is none.
	Claim string
	// Source of the claim; empty: Documented.
	Source string
	Target Target
}

// Compare adds the ratios and verdicts of all comparisons whose both sides were
// measured.
func (r *Report) Compare(all ...Comparison) error {
	for _, c := range all {
		if c.A == nil || c.B == nil {
			continue
		}
		ratio, err := Ratio(c.A, c.B)
		if err != nil {
			return fmt.Errorf("ratio %s: %w", c.Name, err)
		}
		r.Ratios[c.Name] = ratio
		if c.Claim != "" {
			r.Judge(c.Claim, cmp.Or(c.Source, Documented), c.Target, ratio)
		}
	}
	return nil
}

// Documented is the source of claims that the documentation makes.
const Documented = "docs/reference/benchmarks.md"

// Verdict says whether a claim holds.
type Verdict struct {
	// Claim names the compared quantity.
	Claim string `json:"claim"`
	// Source is where the claim comes from.
	Source string `json:"source"`
	// Target is the bound, for example "<= 1.5".
	Target string  `json:"target"`
	Value  float64 `json:"value"`
	Holds  bool    `json:"holds"`
}

// Target is a bound that a value has to keep.
type Target struct {
	sign  string
	bound float64
}

// AtLeast is the target of values that must not be smaller.
func AtLeast(bound float64) Target { return Target{sign: ">=", bound: bound} }

// AtMost is the target of values that must not be larger.
func AtMost(bound float64) Target { return Target{sign: "<=", bound: bound} }

// String returns for example ">= 0.9".
func (t Target) String() string {
	return t.sign + " " + strconv.FormatFloat(t.bound, 'g', -1, 64)
}

func (t Target) holds(value float64) bool {
	if t.sign == ">=" {
		return value >= t.bound
	}
	return value <= t.bound
}

// machine returns the kernel's release and the processor with its number of cores.
func machine() (kernel, cpu string, err error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", "", fmt.Errorf("kernel: %w", err)
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", "", fmt.Errorf("cpu: %w", err)
	}
	model := modelName(string(info))
	if model == "" {
		model = runtime.GOARCH // Arm's kernels give no name
	}
	return unix.ByteSliceToString(name.Release[:]), fmt.Sprintf("%s x %d", model, runtime.NumCPU()), nil
}

// modelName is the first "model name" of /proc/cpuinfo, or empty.
func modelName(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// WriteJSON writes the report as one JSON object, with each result and each verdict
// on a line of its own.
func (r *Report) WriteJSON(w io.Writer) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return err
	}
	// Within a string the quotation marks would be escaped.
	var breaks []string
	for _, field := range []string{"commit", "kernel", "cpu", "started", "quick", "incomplete", "cells", "measured", "results", "ratios", "verdicts"} {
		breaks = append(breaks, `,"`+field+`":`, ",\n\""+field+`":`)
	}
	for _, field := range []string{"name", "claim"} {
		breaks = append(breaks, `{"`+field+`":`, "\n{\""+field+`":`)
	}
	_, err := strings.NewReplacer(breaks...).WriteString(w, text.String())
	return err
}

// WriteTable writes results, ratios, verdicts and distributions as text.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s  %s, kernel %s, %s, commit %s", r.Bench, r.Started.Format(time.DateTime), r.Kernel, r.CPU, r.Commit)
	for _, of := range []struct {
		is   bool
		text string
	}{{r.Quick, ", quick"}, {r.Incomplete, ", incomplete"}} {
		if of.is {
			fmt.Fprint(t, of.text)
		}
	}
	fmt.Fprint(t, "\n\n")
	fmt.Fprintln(t, "RESULT\tMEDIAN\tMIN\tMAX\tUNIT\tRUNS\tCONDITIONS")
	for _, m := range r.Results {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", m.Name, number(m.Median), number(m.Min), number(m.Max), m.Unit, m.Runs, conditions(m.Labels))
	}
	if len(r.Ratios) > 0 {
		fmt.Fprintln(t, "\nRATIO\tVALUE")
		for _, name := range slices.Sorted(maps.Keys(r.Ratios)) {
			fmt.Fprintf(t, "%s\t%s\n", name, number(r.Ratios[name]))
		}
	}
	if len(r.Verdicts) > 0 {
		fmt.Fprintln(t, "\nHOLDS\tVALUE\tTARGET\tCLAIM\tSOURCE")
		for _, v := range r.Verdicts {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", yesNo(v.Holds), number(v.Value), v.Target, v.Claim, v.Source)
		}
	}
	for _, m := range r.Results {
		if m.Distribution != nil {
			fmt.Fprintf(t, "\n%s %s\n", m.Name, conditions(m.Labels))
			m.Distribution.write(t, m.Unit)
		}
		if m.Timeline != nil && m.Max > 0 {
			fmt.Fprintf(t, "\n%s by second: %v\n", m.Name, m.Timeline)
		}
	}
	return t.Flush()
}

func yesNo(holds bool) string {
	if holds {
		return "yes"
	}
	return "NO"
}

// number writes large values whole and small ones with three digits.
func number(v float64) string {
	if v >= 1000 || v <= -1000 || v == float64(int64(v)) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// conditions lists labels in the order of their names.
func conditions(labels map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"="+labels[name])
	}
	return strings.Join(parts, " ")
}
