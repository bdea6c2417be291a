// SPDX-License-Identifier: Apache-2.0

// Package keepalived translates the virtual servers of a keepalived.conf(5) into a
// configuration file of an agent. A line without a counterpart is reported, never left out
// silently. The command "fairlead config import" calls it.
package keepalived

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Options are settings that a file of keepalived doesn't have.
type Options struct {
	// Interfaces are node.interfaces of the configuration; at least one.
	Interfaces []string
	// ConfigID selects conditional lines ("@id"), as keepalived's option --config-id; without
	// it they are left out, and reported.
	ConfigID string
	// Marks are the VIPs whose packets get a firewall mark by rules of the node.
	Marks map[uint32][]lb.VIP
}

// AddMark adds VIPs whose packets have a firewall mark, which is not 0.
func (o *Options) AddMark(mark uint32, vips []lb.VIP) {
	if o.Marks == nil {
		o.Marks = map[uint32][]lb.VIP{}
	}
	o.Marks[mark] = append(o.Marks[mark], vips...)
}

// Finding is a line that is translated differently, in part or not at all.
type Finding struct {
	Place
	Text string
}

// String returns for example "keepalived.conf:12: sorry_server has no counterpart".
func (f Finding) String() string { return f.errorf("%s", f.Text).Error() }

// Result is a configuration, and its differences from the file of keepalived.
type Result struct {
	// YAML is valid for a data plane without limits (config.Parse). It has findings as
	// comments.
	YAML string
	// Findings are distinct, in the order of the translation.
	Findings []Finding
}

// Import translates a file. Included files are read relative to the folder of name. Errors,
// such as unbalanced braces, name the file and the line.
func Import(name, text string, o Options) (*Result, error) {
	im, err := translate(name, text, o)
	if err != nil {
		return nil, err
	}
	r := &Result{YAML: im.write(name), Findings: im.findings.all}
	if _, err := config.Parser(dataplane.Unlimited(maxBackends))("configuration", r.YAML); err != nil {
		return nil, fmt.Errorf("%s: the translation is invalid: %w", printable(name), err)
	}
	return r, nil
}

func translate(name, text string, o Options) (*importer, error) {
	im := &importer{Options: o, findings: &findings{known: map[Finding]bool{}}, groups: map[string]*group{},
		taken: map[lb.VIP]Place{}, used: map[uint32]*statement{}, selected: map[lb.VIP]bool{},
		keywords: keywords()}
	p := &parser{configID: o.ConfigID, findings: im.findings}
	statements, err := p.parse(name, text)
	if err != nil {
		return nil, err
	}
	if im.translate(statements); im.err != nil {
		return nil, im.err
	}
	for _, mark := range slices.Sorted(maps.Keys(o.Marks)) {
		if im.used[mark] == nil {
			return nil, fmt.Errorf("%s: no virtual server has the firewall mark %d", printable(name), mark)
		}
	}
	return im, nil
}

// importer translates statements.
type importer struct {
	Options
	findings *findings
	groups   map[string]*group
	// used are the marks of virtual servers, selected the VIPs of marks that they have, taken the
	// VIPs of services.
	used     map[uint32]*statement
	selected map[lb.VIP]bool
	taken    map[lb.VIP]Place
	// keywords are the directives of all blocks, err is the first reason to refuse the file.
	keywords map[string]map[string]*directive
	err      error
	services []service
	backends int
	// translates is set after a service with nat.
	translates bool
}

// findings are the findings of an import, each once: the lines of a group are translated repeatedly.
type findings struct {
	all   []Finding
	known map[Finding]bool
}

func (f *findings) add(at Place, text string) {
	one := Finding{at, text}
	if !f.known[one] {
		f.known[one] = true
		f.all = append(f.all, one)
	}
}

// service is a translated service; findings.all[first:end] are about it.
type service struct {
	lb.Service
	origin     *statement
	first, end int
}

// translate translates the statements of a whole file.
func (im *importer) translate(statements []*statement) {
	for _, s := range statements {
		if s.keyword() == "virtual_server_group" && len(s.words) > 1 {
			im.addGroup(s)
		}
	}
	x := &reader{importer: im}
	x.block("", &statement{body: statements})
	for _, s := range statements {
		if g := im.groups[s.word(1)]; s.keyword() == "virtual_server_group" && g != nil && g.statement == s && !g.used {
			s.report("virtual_server_group %s: no virtual server uses it", s.word(1))
		}
	}
	for _, mark := range slices.Sorted(maps.Keys(im.used)) {
		for _, vip := range im.Marks[mark] {
			if !im.selected[vip] {
				im.used[mark].report("fwmark %d: %s is left out: no virtual server of this mark is of its address family", mark, vip)
			}
		}
	}
}

// refuse makes the import fail, unless it fails already: keepalived reads a file otherwise than it
// looks, or not at all.
func (im *importer) refuse(s *statement, format string, args ...any) {
	if im.err == nil {
		im.err = s.errorf("%s: "+format, append([]any{s.keyword()}, args...)...)
	}
}

// printable returns a text on one line, for terminals and YAML comments.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
