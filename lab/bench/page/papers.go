// SPDX-License-Identifier: Apache-2.0

// Package page makes one HTML file of a folder of reports: a verdict for each claim of the
// papers, plots, the environment and the reports themselves. cmd/fairlab calls it.
//
// papers.yaml lists the figures, tables and claims; verdicts are computed from the fields
// of the reports that it names.
package page

import (
	_ "embed" // for papers.yaml
	"fmt"

	"github.com/goccy/go-yaml"
)

//go:embed papers.yaml
var papersYAML []byte

// catalogue is papers.yaml.
type catalogue struct {
	// Shared are texts of several claims.
	Shared map[string]string `yaml:"shared"`
	// Reports are the commands by the names of reports.
	Reports map[string]string `yaml:"reports"`
	Papers  []paper           `yaml:"papers"`
}

type paper struct {
	Key     string `yaml:"key"`
	Title   string `yaml:"title"`
	Authors string `yaml:"authors"`
	Items   []item `yaml:"items"`
}

// item is a figure, a table or a section of a paper.
type item struct {
	Item  string `yaml:"item"`
	Shows string `yaml:"shows"`
	// Here is the counterpart of an item that has nothing to measure.
	Here string `yaml:"here"`
	// SameAs refers to another item that shows the same, as PAPER/ITEM.
	SameAs string   `yaml:"sameAs"`
	Series []series `yaml:"series"`
	Claims []claim  `yaml:"claims"`
}

// series are numbers of a paper, Values[i] at At[i].
type series struct {
	Name   string    `yaml:"name"`
	Unit   string    `yaml:"unit"`
	At     []string  `yaml:"at"`
	Values []float64 `yaml:"values"`
}

// claim is a statement of a paper. One of Measure, NotYet and NotHere is set.
type claim struct {
	Claim string `yaml:"claim"`
	// Paper is the number or the words of the paper.
	Paper string `yaml:"paper"`
	// Measure selects a field, whose value has to be AtLeast and AtMost these.
	Measure *measure `yaml:"measure"`
	AtLeast *float64 `yaml:"atLeast"`
	AtMost  *float64 `yaml:"atMost"`
	Note    string   `yaml:"note"`
	// NotYet and NotHere are reasons, and Needs says by which means it could be measured.
	NotYet  string `yaml:"notYet"`
	NotHere string `yaml:"notHere"`
	Needs   string `yaml:"needs"`
}

// measure selects a number of a report: a ratio, the value of a verdict, or results.
type measure struct {
	Report  string `yaml:"report"`
	Ratio   string `yaml:"ratio"`
	Verdict string `yaml:"verdict"`
	// Unit of the verdict's value.
	Unit string `yaml:"unit"`
	// Result is the name of results, and Where has labels that they have.
	Result string            `yaml:"result"`
	Where  map[string]string `yaml:"where"`
	// Of is the part of a result: median (default), max or p99.
	Of string `yaml:"of"`
	// Pick is how several results become one value: max or sum.
	Pick string `yaml:"pick"`
	// Over has the labels that differ, and OverResult is the name, if it differs, of the
	// result that the value is divided by.
	Over       map[string]string `yaml:"over"`
	OverResult string            `yaml:"overResult"`
}

// decode parses an embedded file.
func decode[T any](text []byte) (*T, error) {
	var v T
	if err := yaml.UnmarshalWithOptions(text, &v, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("embedded file: %w", err)
	}
	return &v, nil
}

// find returns the item that a reference PAPER/ITEM names, or nil.
func (c *catalogue) find(reference string) *item {
	for i := range c.Papers {
		for j := range c.Papers[i].Items {
			if it := &c.Papers[i].Items[j]; c.Papers[i].Key+"/"+it.Item == reference {
				return it
			}
		}
	}
	return nil
}

// series returns the numbers of a paper by the reference of their item, nil if there are none.
func (c *catalogue) series(reference, name string) *series {
	if it := c.find(reference); it != nil {
		for i := range it.Series {
			if it.Series[i].Name == name {
				return &it.Series[i]
			}
		}
	}
	return nil
}
