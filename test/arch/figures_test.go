// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"cmp"
	"encoding/json"
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

// report has the fields of a bench's report that pages show.
type report struct {
	Results []struct {
		Name, Unit       string
		Median, Min, Max float64
		Runs             int
		Labels           map[string]string
	}
	Ratios   map[string]float64
	Verdicts []struct {
		Claim  string
		Target string
		Value  float64
		Holds  bool
	}
}

// figures is a generated table: the report, the shown part, and its rows.
var figures = regexp.MustCompile(`(?s)(<!-- (\w+) of reports/(\w+)\.json, made by go test \./test/arch -update -->\n).*?(<!-- end -->)`)

// TestFigures compares the tables of reference/benchmarks.md with the committed reports.
func TestFigures(t *testing.T) {
	path := filepath.Join(root, "docs", "reference", "benchmarks.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	current := figures.ReplaceAllStringFunc(string(text), func(block string) string {
		tables++
		m := figures.FindStringSubmatch(block)
		r := readReport(t, m[3])
		switch m[2] {
		case "ratios":
			return m[1] + r.ratios() + m[4]
		case "costs":
			return m[1] + r.costs() + m[4]
		case "throughput":
			return m[1] + r.throughput() + m[4]
		case "results":
			return m[1] + r.results() + m[4]
		}
		t.Errorf("%s: unknown table %s", path, m[2])
		return block
	})
	if tables < 4 {
		t.Errorf("%s: %d tables, want at least 4", path, tables)
	}
	if *update {
		if err := os.WriteFile(path, []byte(current), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if current != string(text) {
		t.Errorf("%s differs from the reports: go test ./test/arch -run TestFigures -update", path)
	}
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
		target := "–"
		for _, v := range r.Verdicts {
			if v.Value == r.Ratios[name] {
				target = strings.NewReplacer("<=", "≤", ">=", "≥").Replace(v.Target)
				if !v.Holds {
					target += ": missed"
				}
			}
		}
		rows += fmt.Sprintf("| `%s` | %s | %s |\n", name, strconv.FormatFloat(r.Ratios[name], 'g', 3, 64), target)
	}
	return rows
}

// results has a row for each quantity, and one for each verdict.
func (r report) results() string {
	rounded := func(v float64) string { return strconv.FormatFloat(math.Round(v), 'f', 0, 64) }
	var rows []string
	for _, result := range r.Results {
		name := result.Name
		for _, key := range slices.Sorted(maps.Keys(result.Labels)) {
			name += fmt.Sprintf(", %s: %s", key, result.Labels[key])
		}
		row := fmt.Sprintf("| %s | %s %s |", name, rounded(result.Median), result.Unit)
		if result.Runs > 1 {
			row = fmt.Sprintf("| %s | %s %s (%s to %s, %d times) |", name, rounded(result.Median), result.Unit, rounded(result.Min), rounded(result.Max), result.Runs)
		}
		rows = append(rows, row)
	}
	slices.Sort(rows)
	for _, v := range r.Verdicts {
		target := strings.NewReplacer("<=", "≤", ">=", "≥").Replace(v.Target)
		if !v.Holds {
			target += ": missed"
		}
		value := rounded(v.Value)
		if v.Value < 100 {
			value = strconv.FormatFloat(v.Value, 'g', 3, 64)
		}
		rows = append(rows, fmt.Sprintf("| %s | %s (%s) |", v.Claim, value, target))
	}
	return "| quantity | value |\n| --- | --- |\n" + strings.Join(rows, "\n") + "\n"
}

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
