// SPDX-License-Identifier: Apache-2.0

// Package keepalived translates the virtual servers of a keepalived.conf(5) into a
// configuration file of an agent. A line without a counterpart is reported, never left out
// silently. The command "fairlead config import" calls it.
package keepalived

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	r := &Result{YAML: im.write(name), Findings: im.findings}
	if _, err := config.Parser(dataplane.Unlimited(maxBackends))("configuration", r.YAML); err != nil {
		return nil, fmt.Errorf("%s: the translation is invalid: %w", printable(name), err)
	}
	return r, nil
}

func translate(name, text string, o Options) (*importer, error) {
	im := &importer{Options: o, reported: map[Finding]bool{}, groups: map[string]*group{}, taken: map[lb.VIP]Place{}, used: map[uint32]bool{}}
	p := &parser{configID: o.ConfigID, report: im.reportAt}
	statements, err := p.parse(name, text)
	if err != nil {
		return nil, err
	}
	im.translate(statements)
	for _, mark := range slices.Sorted(maps.Keys(o.Marks)) {
		if !im.used[mark] {
			return nil, fmt.Errorf("%s: no virtual server has the firewall mark %d", printable(name), mark)
		}
	}
	return im, nil
}

// importer translates statements.
type importer struct {
	Options
	findings []Finding
	reported map[Finding]bool
	groups   map[string]*group
	// used are the marks of virtual servers, taken the VIPs of services.
	used     map[uint32]bool
	taken    map[lb.VIP]Place
	services []service
	backends int
}

// service is a translated service; findings[first:end] are about it.
type service struct {
	lb.Service
	origin     *statement
	first, end int
}

// report adds a finding unless it is known: the lines of a group are translated repeatedly.
func (im *importer) report(s *statement, format string, args ...any) {
	im.reportAt(s.Place, fmt.Sprintf(format, args...))
}

func (im *importer) reportAt(at Place, text string) {
	f := Finding{at, text}
	if !im.reported[f] {
		im.reported[f] = true
		im.findings = append(im.findings, f)
	}
}

// elsewhere are the replacements of blocks that don't describe virtual servers, by the
// beginning of their keyword.
var elsewhere = []struct{ prefix, text string }{
	{"vrrp_", "nodes don't take over addresses by VRRP: all of them announce their VIPs by BGP (section bgp)"},
	{"bfd_", "BFD belongs to a BGP peer (bgp.peers[].bfd)"},
	{"static_", "addresses, routes and rules of the node are left to its network configuration; VIPs are announced by BGP"},
	{"global_defs", "settings of the daemon have no counterpart: metrics and alerts replace mail and SNMP, BGP replaces VRRP"},
	{"SSL", "checks have no client certificate; health.tls.ca is the counterpart of ca"},
	{"track_", "there is no counterpart: BGP withdraws VIPs without healthy backends"},
	{"", "there is no counterpart"},
}

// translate translates the statements of a whole file.
func (im *importer) translate(statements []*statement) {
	for _, s := range statements {
		if s.keyword() == "virtual_server_group" {
			im.addGroup(s)
		}
	}
	for _, s := range statements {
		switch s.keyword() {
		case "virtual_server_group":
		case "virtual_server":
			im.virtualServer(s)
		default:
			for _, e := range elsewhere {
				if strings.HasPrefix(s.keyword(), e.prefix) {
					im.report(s, "%s: %s", strings.Join(s.words[:min(2, len(s.words))], " "), e.text)
					break
				}
			}
		}
	}
	for _, s := range statements {
		if g := im.groups[s.word(1)]; s.keyword() == "virtual_server_group" && g != nil && g.statement == s && !g.used {
			im.report(s, "virtual_server_group %s: no virtual server uses it", s.word(1))
		}
	}
}

// number reads the first parameter as a whole number from low to high, or reports it.
func (im *importer) number(s *statement, low, high int) (n int, ok bool) {
	n, err := strconv.Atoi(s.word(1))
	if err != nil || n < low || n > high {
		im.report(s, "%s %q: want a number from %d to %d", s.keyword(), s.word(1), low, high)
		return 0, false
	}
	return n, true
}

// flag reads the first parameter as a truth value, or reports it; without one it is true.
func (im *importer) flag(s *statement) bool {
	switch s.word(1) {
	case "", "true", "on", "yes":
		return true
	case "false", "off", "no":
		return false
	}
	im.report(s, "%s %q: want true or false", s.keyword(), s.word(1))
	return false
}

// valid removes from a service the parts that an agent would reject, and reports them. It
// returns false for a service that is left out.
func (im *importer) valid(s lb.Service, origin *statement, servers []*server) (lb.Service, bool) {
	for {
		found := s.Check()
		if len(found) == 0 {
			return s, true
		}
		first := found[0]
		var index int
		if n, _ := fmt.Sscanf(first.Path, "backends[%d]", &index); n == 1 {
			im.report(servers[index].statement, "%s %s: left out: %v", servers[index].keyword(), servers[index].word(1), first.Err)
			s.Backends, servers = slices.Delete(s.Backends, index, index+1), slices.Delete(slices.Clone(servers), index, index+1)
			s.MinHealthy = max(1, min(s.MinHealthy, len(s.Backends)))
			continue
		}
		if strings.HasPrefix(first.Path, "health.") {
			im.report(origin, "%s: backends are not checked: %v", s.Name, first)
			s.Health = nil
			continue
		}
		im.report(origin, "%s: left out: %v", s.Name, first)
		return s, false
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
