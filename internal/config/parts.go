// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
)

// parts are the text of a file. Without anchors, which aren't supported, services don't
// depend on each other, so any of them can be parsed between before and after.
type parts struct {
	// before ends behind the line "services:" and comments, after begins with the next field.
	before, after string
	services      []string
	// lines has for each service, and for after, the number of lines before it.
	lines []int
}

// cut finds the services of a file that lists them as most do: behind a line of its own,
// each from a line that begins with a dash. The text need not be valid.
func cut(text string) (p parts, found bool) {
	if strings.Count(text, "\r") > strings.Count(text, "\r\n") { // which end lines, too
		return p, false
	}
	p.before, p.after = text, ""
	from, at := 0, 0 // of the service; of the line
	n := 0           // lines before this one
	// dash is how services begin, deeper how their other lines do.
	dash, deeper := "", ""
	inside := false
	for line := range strings.Lines(text) {
		if dash != "" && strings.HasPrefix(line, deeper) { // as most lines do
			at, n = at+len(line), n+1
			continue
		}
		content := strings.TrimLeft(line, " ")
		empty := strings.TrimSpace(content) == "" || content[0] == '#'
		indent := line[:len(line)-len(content)]
		switch {
		case !inside:
			inside = strings.TrimRight(line, " \r\n") == "services:"
		case empty:
		case strings.HasPrefix(content, "- ") && (dash == "" || indent+"- " == dash):
			if dash == "" {
				p.before, dash, deeper = text[:at], indent+"- ", indent+" "
			} else {
				p.services = append(p.services, text[from:at])
			}
			from, p.lines = at, append(p.lines, n)
		case dash == "":
			return p, false
		default:
			p.services, p.after, p.lines = append(p.services, text[from:at]), text[at:], append(p.lines, n)
			return p, startsField(p.after)
		}
		at, n = at+len(line), n+1
	}
	if dash == "" {
		return p, false
	}
	p.services, p.lines = append(p.services, text[from:]), append(p.lines, n)
	return p, true
}

// startsField reports whether a text begins with the name of a field.
func startsField(text string) bool { return text[0] >= 'a' && text[0] <= 'z' }

// with is the text of a file with other services.
func (p parts) with(services []string) string {
	return p.before + strings.Join(services, "") + p.after
}

// partsParser parses a file in parts, on all processors: only services whose text the last
// file doesn't have, and services that read another file or are followed. If a part has errors the file is
// parsed as a whole, so that errors have their lines.
type partsParser struct {
	limits dataplane.Limits
	// last are the parts of the last file, and services its parsed services, some of them followed.
	last     parts
	services []lb.Service
	followed map[lb.VIP]source.Follow
}

// Parser returns a function that does as Parse with these limits. It needs less time for a
// file that differs little from the last one. It must not be called concurrently.
func Parser(limits dataplane.Limits) func(name, text string) (*Config, error) {
	p := &partsParser{limits: limits}
	return p.parse
}

func (p *partsParser) parse(name, text string) (*Config, error) {
	if parts, found := cut(text); found {
		if c := p.assemble(name, parts); c != nil {
			return c, nil
		}
		if len(text) > maxTree {
			return nil, p.findErrors(name, parts)
		}
	}
	return Parse(name, text, p.limits)
}

// known returns for each service of a file one of the last file with the same text, or nil,
// and the range between the services with which both files begin and end.
func (p *partsParser) known(text parts) (known []*lb.Service, first, end int) {
	known = make([]*lb.Service, len(text.services))
	if text.before != p.last.before || text.after != p.last.after {
		return known, 0, len(known)
	}
	was, now := p.last.services, text.services
	for first < min(len(was), len(now)) && was[first] == now[first] {
		known[first] = &p.services[first]
		first++
	}
	tail := 0
	for tail < min(len(was), len(now))-first && was[len(was)-1-tail] == now[len(now)-1-tail] {
		known[len(now)-1-tail] = &p.services[len(was)-1-tail]
		tail++
	}
	moved := make(map[string]*lb.Service)
	for i := first; i < len(was)-tail; i++ {
		moved[was[i]] = &p.services[i]
	}
	end = len(now) - tail
	for i := first; i < end; i++ {
		known[i] = moved[now[i]]
	}
	return known, first, end
}

// readsFile reports whether a service has the contents of another file, which may change.
func readsFile(s *lb.Service) bool {
	return s.Health != nil && s.Health.TLS != nil && s.Health.TLS.CA != ""
}

// assemble returns nil if the file has to be parsed as a whole.
func (p *partsParser) assemble(name string, text parts) *Config {
	known, first, end := p.known(text)
	var unknown []int
	for i, service := range known {
		if service != nil && !readsFile(service) {
			if _, followed := p.followed[service.VIP]; !followed {
				continue
			}
		}
		unknown = append(unknown, i)
	}
	if len(unknown) == 0 {
		unknown = []int{0} // with which the rest of the file is parsed
	}
	c := p.parseServices(name, text, unknown)
	if c == nil {
		return nil
	}
	parsed := c.Services
	c.Services = make([]lb.Service, len(text.services))
	for i, service := range known {
		if len(unknown) > 0 && unknown[0] == i {
			c.Services[i], parsed, unknown = parsed[0], parsed[1:], unknown[1:]
		} else {
			c.Services[i] = *service
		}
	}
	if c.checkCapacity() != nil || !distinctServices(c.Services, first, end) {
		return nil
	}
	p.last, p.services, p.followed = text, c.Services, c.Followed
	return c
}

// Sizes of the services of one part in bytes. The rest of the file is parsed with each part:
// parts are larger if that is, but a tree takes a hundred times as much memory.
const (
	minPart = 64 << 10
	maxPart = 1 << 20
)

// partSize is the size of the services of one part, the last of which may exceed it.
func (p parts) partSize() int {
	return min(max(minPart, 8*(len(p.before)+len(p.after))), maxPart)
}

// parseServices returns a configuration with the services at the given indexes, or nil.
func (p *partsParser) parseServices(name string, text parts, indexes []int) *Config {
	size, filled := text.partSize(), 0
	var chunks []chunk
	for _, i := range indexes {
		if filled == 0 {
			chunks = append(chunks, chunk{})
		}
		last := &chunks[len(chunks)-1]
		last.services = append(last.services, text.services[i])
		last.lines += text.lines[i+1] - text.lines[i]
		if filled += len(text.services[i]); filled >= size {
			filled = 0
		}
	}
	parsed := make([]*Config, len(chunks))
	group, ctx := errgroup.WithContext(context.Background()) // ends with the first error
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, some := range chunks {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			// The lines of errors and warnings within services don't matter.
			at := part{before: text.lines[0], services: some.lines, rest: text.lines[len(text.services)] - text.lines[0] - some.lines}
			c, err := p.parsePart(name, text.with(some.services), at, newServiceIndex())
			if err == nil && (len(c.Services) != len(some.services) || c.warnsWithin(at.before, at.before+at.services)) {
				err = errWhole
			}
			parsed[i] = c
			return err
		})
	}
	if group.Wait() != nil {
		return nil
	}
	for _, c := range parsed[1:] {
		parsed[0].Services = append(parsed[0].Services, c.Services...)
		if parsed[0].Followed == nil {
			parsed[0].Followed = c.Followed
		} else {
			maps.Copy(parsed[0].Followed, c.Followed)
		}
	}
	return parsed[0]
}

// chunk are services that are parsed together, and the number of their lines.
type chunk struct {
	services []string
	lines    int
}

// parsePart parses a part of a file; known are the services before it.
func (p *partsParser) parsePart(name, text string, at part, known serviceIndex) (*Config, error) {
	c := &Config{}
	return parse(&decoder{file: name, limits: p.limits, warnings: &c.Warnings, services: known, part: at}, text, c, readConfig)
}

// errWhole is the error of a large file whose parts have another meaning than the whole.
var errWhole = errors.New("each service has to begin on a line with a dash, as the file is large")

// warnsWithin reports whether there are warnings about lines behind first, up to last.
func (c *Config) warnsWithin(first, last int) bool {
	return slices.ContainsFunc(c.Warnings, func(w Warning) bool { return w.Line > first && w.Line <= last })
}

// distinctServices reports whether services have different names and VIPs, if those before
// first and from end on have.
func distinctServices(services []lb.Service, first, end int) bool {
	names, vips := make(map[string]bool, end-first), make(map[lb.VIP]bool, end-first)
	for i := first; i < end; i++ {
		names[services[i].Name], vips[services[i].VIP] = true, true
	}
	for i := range services {
		if (i < first || i >= end) && (names[services[i].Name] || vips[services[i].VIP]) {
			return false
		}
	}
	return len(names) == end-first && len(vips) == end-first
}

// part says where the services of a text are in the file that it is a part of. The zero part
// is the whole file.
type part struct {
	// first is the index of the first service.
	first int
	// Numbers of lines: before the services and of the services in the text; skipped and rest
	// count the services' lines of the file before and after these.
	before, services, skipped, rest int
}

// line returns the line of the file for one of the text.
func (p part) line(n int) int {
	if n > p.before {
		n += p.skipped
	}
	if n > p.before+p.skipped+p.services {
		n += p.rest
	}
	return n
}

// findErrors returns the errors of a file that is too large for one tree: the errors of the
// first part that has any.
func (p *partsParser) findErrors(name string, text parts) error {
	all, known := &Config{}, newServiceIndex()
	size, lines, end := text.partSize(), text.lines, text.lines[len(text.services)]
	for first, next := 0, 0; first < len(text.services); first = next {
		for filled := 0; next < len(text.services) && filled < size; next++ {
			filled += len(text.services[next])
		}
		at := part{first: first, before: lines[0], services: lines[next] - lines[first], skipped: lines[first] - lines[0], rest: end - lines[next]}
		c, err := p.parsePart(name, text.with(text.services[first:next]), at, known)
		if err != nil {
			return err
		}
		all.Dataplane, all.Services = c.Dataplane, append(all.Services, c.Services...)
	}
	err := cmp.Or(all.checkCapacity(), errWhole)
	return Errors{{Place: Place{File: name, Line: lines[0] + 1, Column: 1, Path: "services"}, Err: err}}
}
