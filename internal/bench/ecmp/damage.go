// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"fmt"

	"fairlead.io/fairlead/internal/bench"
)

// damage is what accidents of one kind did, by family and then by the end of the
// result's name. What is of no family is of the empty one.
type damage map[family]map[string]bench.Runs

func (d damage) add(f family, name string, v float64) {
	if d[f] == nil {
		d[f] = map[string]bench.Runs{}
	}
	d[f][name] = append(d[f][name], v)
}

// all are the measurements of every family.
func (d damage) all(name string) bench.Runs {
	var all bench.Runs
	for _, f := range append(families(), "") {
		all = append(all, d[f][name]...)
	}
	return all
}

// findings are the ends of the results' names with their units, as they are
// reported.
func findings() [][2]string {
	return [][2]string{
		{"outage_ms", "ms"}, {"table_ms", "ms"}, {"absent_ms", "ms"}, {"wrong_tables", "tables"},
		{"sent", "datagrams"}, {"lost", "datagrams"}, {"moved", "datagrams"}, {"return_lost", "datagrams"},
		{"tcp_connections", "connections"}, {"tcp_broken", "connections"}, {"backlog_drops", "packets"},
	}
}

// report adds what was found in a setting, and judges it.
func (d damage) report(r *bench.Report, how Setting, a accident) {
	for _, f := range append(families(), "") {
		labels := how.labels("family", string(f))
		if f == "" {
			labels = how.labels()
		}
		for _, finding := range findings() {
			r.Add(a.name+"_"+finding[0], finding[1], d[f][finding[0]], labels)
		}
	}
	for _, c := range a.claims {
		runs := d.all(c.result)
		_, value := runs.Bounds()
		if c.sum {
			value = sum(runs)
		}
		r.Judge(fmt.Sprintf("%s: %s", how, c.text), "DESIGN.md §10", c.target, value)
	}
}
