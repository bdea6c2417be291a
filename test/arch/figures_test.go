// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the figures of reference/benchmarks.md from the reports")

// result is a quantity of a report.
type result struct {
	Name, Unit       string
	Median, Min, Max float64
	Runs             int
	Labels           map[string]string
	Distribution     struct{ P99 float64 }
}

// report has the fields of a bench's report that pages show.
type report struct {
	Results  []result
	Ratios   map[string]float64
	Verdicts []struct {
		Claim  string
		Target string
		Value  float64
		Holds  bool
	}
}

// figures is generated text: the shown part of a report, and for results the labels that differ between columns, and
// their names in the order of rows.
var figures = regexp.MustCompile(`(?s)(<!-- (\w+) of reports/(\w+)\.json(?: by ([\w, ]+))?(?:: ([\w\s]+))?,\smade by go test \./test/arch -update -->\n).*?(<!-- end -->)`)

// TestFigures compares the figures of reference/benchmarks.md with the committed reports.
func TestFigures(t *testing.T) {
	path := filepath.Join(root, "docs", "reference", "benchmarks.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	current := figures.ReplaceAllStringFunc(string(text), func(block string) string {
		found++
		m := figures.FindStringSubmatch(block)
		by := strings.Split(m[4], ", ")
		figure, err := readReport(t, m[3]).figure(m[2], by, strings.Fields(m[5]))
		if err != nil {
			t.Errorf("%s: %v", strings.TrimSpace(m[1]), err)
		}
		return m[1] + figure + m[6]
	})
	if found < 15 {
		t.Errorf("%d figures, want at least 15", found)
	}
	if *update {
		if err := os.WriteFile(path, []byte(current), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if current != string(text) {
		t.Errorf("%s differs from the reports: go test ./test/arch -run TestFigures -update", path)
	}
}

// figure returns a part of the report as Markdown.
func (r report) figure(kind string, by, names []string) (string, error) {
	for _, name := range names {
		if !slices.ContainsFunc(r.Results, func(x result) bool { return x.Name == name }) {
			return "", fmt.Errorf("no result %s", name)
		}
	}
	switch kind {
	case "ratios":
		return r.ratios(), nil
	case "costs":
		return r.costs(), nil
	case "throughput":
		return r.throughput(), nil
	case "scenarios":
		return r.scenarios(), nil
	case "results":
		return r.results(by, names), nil
	case "verdicts":
		return r.verdicts(), nil
	}
	return "", errors.New("unknown figure")
}

func readReport(t *testing.T, bench string) report {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "docs", "reports", bench+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("%s: %v", bench, err)
	}
	return r
}

// ratios has a row for each ratio of the report, with its target.
func (r report) ratios() string {
	rows := "| ratio | value | target |\n| --- | --- | --- |\n"
	var names []string
	for name := range r.Ratios {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		var targets []string
		for _, v := range r.Verdicts {
			if v.Value == r.Ratios[name] {
				target := symbols.Replace(v.Target)
				if !v.Holds {
					target += ": missed"
				}
				targets = appendNew(targets, target)
			}
		}
		rows += fmt.Sprintf("| `%s` | %s | %s |\n", name, strconv.FormatFloat(r.Ratios[name], 'g', 3, 64), cmp.Or(strings.Join(targets, ", "), "–"))
	}
	return rows
}

// results has a row for each quantity, or for those with these names in their order, and a column for each combination of
// these labels.
func (r report) results(by, names []string) string {
	var shown []result
	values := map[string][]string{} // of labels
	for _, x := range r.Results {
		if len(names) == 0 || slices.Contains(names, x.Name) {
			shown = append(shown, x)
			for key, value := range x.Labels {
				values[key] = appendNew(values[key], value)
			}
		}
	}
	slices.SortStableFunc(shown, func(a, b result) int {
		return cmp.Compare(slices.Index(names, a.Name), slices.Index(names, b.Name))
	})
	var rows, columns []string
	cells := map[[2]string]string{}
	for _, x := range shown {
		row, column := "`"+x.Name+"`, "+x.Unit, ""
		for _, key := range slices.Sorted(maps.Keys(x.Labels)) {
			if text := key + ": " + x.Labels[key]; slices.Contains(by, key) {
				column = strings.TrimPrefix(column+"; "+text, "; ")
			} else if len(values[key]) > 1 {
				row += "; " + text
			}
		}
		column = cmp.Or(column, "median")
		rows, columns = appendNew(rows, row), appendNew(columns, column)
		cells[[2]string{row, column}] = x.String()
	}
	return table("result", rows, columns, cells)
}

// String is the median, with the 99th percentile or the smallest value, and with the largest one.
func (x result) String() string {
	switch {
	case x.Runs == 1:
		return rounded(x.Median)
	case x.Distribution.P99 > 0:
		return fmt.Sprintf("%s (p99 %s, max %s)", rounded(x.Median), rounded(x.Distribution.P99), rounded(x.Max))
	}
	return fmt.Sprintf("%s (%s to %s)", rounded(x.Median), rounded(x.Min), rounded(x.Max))
}

// rounded has three digits, or all of a greater whole number.
func rounded(v float64) string {
	if math.Abs(v) >= 100 {
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// verdicts says how many hold, and which ones don't.
func (r report) verdicts() string {
	var missed string
	held := 0
	for _, v := range r.Verdicts {
		if v.Holds {
			held++
			continue
		}
		missed += fmt.Sprintf("- %s:\n  %s (%s)\n", v.Claim, rounded(v.Value), symbols.Replace(v.Target))
	}
	text := fmt.Sprintf("Verdicts that hold: %d of %d.", held, len(r.Verdicts))
	if missed != "" {
		text += " Missed:\n\n" + strings.TrimSuffix(missed, "\n")
	}
	return text + "\n"
}

// symbols are the signs of targets on pages.
var symbols = strings.NewReplacer("<=", "≤", ">=", "≥")

// costs has a row for each program of bench packet, with TCP over IPv4 and a column for
// each number of flows, but for that with which two processors are compared with one.
func (r report) costs() string {
	var programs, flows []string
	cells := map[[2]string]string{}
	compared := map[string]bool{}
	for _, result := range r.Results {
		if result.Labels["processors"] != "" {
			compared[result.Labels["flows"]] = true
		}
	}
	for _, result := range r.Results {
		l := result.Labels
		if result.Name != "packet_cost" || l["family"] != "ipv4" || l["protocol"] != "tcp" || compared[l["flows"]] {
			continue
		}
		program := fmt.Sprintf("%s × %s, %s", l["vips"], l["backends"], l["program"])
		if l["tracking"] == "full" {
			program += ", every flow tracked"
		}
		programs, flows = appendNew(programs, program), appendNew(flows, l["flows"])
		cells[[2]string{program, l["flows"]}] = fmt.Sprintf("%.0f", result.Median)
	}
	slices.SortFunc(flows, func(a, b string) int { return len(a) - len(b) })
	return table("VIPs × backends, program; flows:", programs, flows, cells)
}

// throughput has a row for each kind of traffic of bench forward, and a column for each
// device.
func (r report) throughput() string {
	devices := []string{"none", "reflector", "l2dsr", "ipip", "gue", "vxlan", "geneve", "nat", "pods", "filtered", "nftables", "iptables"}
	var kinds []string
	cells := map[[2]string]string{}
	for _, result := range r.Results {
		l := result.Labels
		kind := fmt.Sprintf("%s, %s, %s", l["traffic"], l["state"], l["frame"])
		value := fmt.Sprintf("%.2f", result.Median/1e6)
		switch {
		case !slices.Contains(devices, l["device"]) || strings.HasSuffix(l["traffic"], "-tagged"):
			continue
		case result.Name == "throughput":
		case result.Name == "device_cost" && l["traffic"] == "udp" && l["frame"] == "64":
			kind, value = "device cost, ns ("+kind+")", fmt.Sprintf("%.0f", result.Median)
		default:
			continue
		}
		kinds = appendNew(kinds, kind)
		cells[[2]string{kind, l["device"]}] = value
	}
	slices.SortStableFunc(kinds, func(a, b string) int {
		return strings.Count(a, "device") - strings.Count(b, "device")
	})
	return table("traffic, state, frame", kinds, devices, cells)
}

// scenarios has a row for each kind of traffic of the scenarios of bench forward, and a column for
// each device. iptables gets untagged frames.
func (r report) scenarios() string {
	devices := []string{"none", "reflector", "l2dsr-a", "l2dsr-b", "iptables-128"}
	var kinds []string
	cells := map[[2]string]string{}
	for _, result := range r.Results {
		kind, tagged := strings.CutSuffix(result.Labels["traffic"], "-tagged")
		kind += ", " + result.Labels["frame"]
		cell := [2]string{kind, result.Labels["device"]}
		switch {
		case !tagged && cell[1] != "iptables-128":
		case result.Name == "throughput":
			kinds = appendNew(kinds, kind)
			cells[cell] = fmt.Sprintf("%.2f", result.Median/1e6)
		case result.Name == "layer2_rate", result.Name == "layer1_rate":
			cells[cell] += fmt.Sprintf(" / %.2f", result.Median)
		}
	}
	return table("traffic, frame", kinds, devices, cells)
}

// table has the cells by row and column; a missing one is a dash.
func table(title string, rows, columns []string, cells map[[2]string]string) string {
	text := "| " + title + " | " + strings.Join(columns, " | ") + " |\n|" + strings.Repeat(" --- |", len(columns)+1) + "\n"
	for _, row := range rows {
		text += "| " + row + " |"
		for _, column := range columns {
			text += " " + cmp.Or(cells[[2]string{row, column}], "–") + " |"
		}
		text += "\n"
	}
	return text
}

func appendNew(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}
