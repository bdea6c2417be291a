// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable writes the report for people: results, ratios, verdicts,
// and distributions.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s  %s, kernel %s, %s, commit %s%s\n\n", r.Bench, r.Started.Format(time.DateTime), r.Kernel, r.CPU, r.Commit, quickNote(r.Quick))
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
	}
	return t.Flush()
}

func quickNote(quick bool) string {
	if quick {
		return ", quick"
	}
	return ""
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
