// SPDX-License-Identifier: Apache-2.0

package page

import (
	_ "embed" // for the template and its style sheets
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.io/fairlead/lab/bench"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed chart.css
	chartCSS string
)

// report is a report of the folder, with its JSON.
type report struct {
	bench.Report
	Text string
}

// reports are all reports of a folder by their bench.
type reports map[string]*report

// find returns the results of a name that have all the labels.
func (r *report) find(name string, labels map[string]string) []*bench.Result {
	var found []*bench.Result
	for i := range r.Results {
		result := &r.Results[i]
		matches := result.Name == name
		for label, want := range labels {
			matches = matches && result.Labels[label] == want
		}
		if matches {
			found = append(found, result)
		}
	}
	return found
}

// read reads all reports of a folder.
func read(dir string) (reports, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	all := reports{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r := &report{Text: string(text)}
		if err := json.Unmarshal(text, &r.Report); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if r.Bench == "" || all[r.Bench] != nil {
			return nil, fmt.Errorf("%s: no report, or a second one of bench %q", file, r.Bench)
		}
		all[r.Bench] = r
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no reports (*.json)", dir)
	}
	return all, nil
}

// view is the data of the template.
type view struct {
	// Commands are of reports.
	Commands map[string]string
	Style    template.CSS
	States   []state
	Tally    tally
	// Machines are processor and kernel of the reports.
	Machines []string
	Papers   []paperView
	Plots    []*chart
	Reports  []*report
}

// paperView is a paper with the verdicts on its claims.
type paperView struct {
	*paper
	Tally tally
	// Rows are items with claims, Rest are others.
	Rows, Rest []itemView
}

type itemView struct {
	*item
	ID       string
	Outcomes []outcome
	// Same is the item that SameAs names, with its paper and verdicts.
	Same *itemView
}

// tally counts verdicts.
type tally map[state]int

// load returns the papers, the reports in a folder, and the charts that have points of them.
func load(dir string) (*catalogue, []*chart, reports, error) {
	papers, err := decode[catalogue](papersYAML)
	if err != nil {
		return nil, nil, nil, err
	}
	charts, err := decode[plots](plotsYAML)
	if err != nil {
		return nil, nil, nil, err
	}
	all, err := read(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	return papers, charts.drawn(all, papers), all, nil
}

// Write writes the page of the reports in a folder.
func Write(w io.Writer, dir string) error {
	papers, charts, all, err := load(dir)
	if err != nil {
		return err
	}
	v := view{Style: template.CSS(chartCSS + pageCSS), States: states, Commands: papers.Reports, Tally: tally{}, Plots: charts} //nolint:gosec // embedded
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		v.Reports = append(v.Reports, r)
		if machine := r.CPU + ", kernel " + r.Kernel; !slices.Contains(v.Machines, machine) {
			v.Machines = append(v.Machines, machine)
		}
	}
	for i := range papers.Papers {
		v.Papers = append(v.Papers, v.paper(&papers.Papers[i], papers, all))
	}
	return template.Must(template.New("page").Funcs(template.FuncMap{"digits": digits}).Parse(pageHTML)).Execute(w, &v)
}

// paper judges the claims of a paper and counts the verdicts.
func (v *view) paper(p *paper, papers *catalogue, reports reports) paperView {
	pv := paperView{paper: p, Tally: tally{}}
	for i := range p.Items {
		iv := p.Items[i].judge(p.Key+"/"+p.Items[i].Item, reports)
		if same := papers.find(p.Items[i].SameAs); same != nil {
			other := same.judge(p.Items[i].SameAs, reports)
			iv.Same = &other
		}
		for _, o := range iv.Outcomes {
			pv.Tally[o.State]++
		}
		if iv.Same == nil && iv.Outcomes == nil {
			pv.Tally[nothing]++
			pv.Rest = append(pv.Rest, iv)
		} else {
			pv.Rows = append(pv.Rows, iv)
		}
	}
	for s, n := range pv.Tally {
		v.Tally[s] += n
	}
	return pv
}

func (it *item) judge(reference string, reports reports) itemView {
	iv := itemView{item: it, ID: strings.NewReplacer(" ", "-", "/", "-", ":", "", ",", "").Replace(reference)}
	for i := range it.Claims {
		iv.Outcomes = append(iv.Outcomes, it.Claims[i].judge(reports))
	}
	return iv
}
