// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// parts are the text of a file. Without anchors, which aren't supported, services don't
// depend on each other, so any of them can be parsed between before and after.
type parts struct {
	// before ends behind the line "services:" and comments, after begins with the next field.
	before, after string
	services      []string
}

// cut finds the services of a file that lists them as most do: behind a line of its own,
// each from a line that begins with a dash. The text need not be valid.
func cut(text string) (p parts, found bool) {
	if strings.Count(text, "\r") > strings.Count(text, "\r\n") { // which end lines, too
		return p, false
	}
	p.before, p.after = text, ""
	from, at, dash := 0, 0, "" // of the service; of the line
	inside := false
	for line := range strings.Lines(text) {
		content := strings.TrimLeft(line, " ")
		empty := strings.TrimSpace(content) == "" || content[0] == '#'
		indent := line[:len(line)-len(content)]
		switch {
		case !inside:
			inside = strings.TrimRight(line, " \r\n") == "services:"
		case empty || dash != "" && len(indent) > len(dash)-len("- "):
		case strings.HasPrefix(content, "- ") && (dash == "" || indent+"- " == dash):
			if dash == "" {
				p.before = text[:at]
			} else {
				p.services = append(p.services, text[from:at])
			}
			from, dash = at, indent+"- "
		case dash == "":
			return p, false
		default:
			p.services, p.after = append(p.services, text[from:at]), text[at:]
			return p, startsField(p.after)
		}
		at += len(line)
	}
	if dash == "" {
		return p, false
	}
	p.services = append(p.services, text[from:])
	return p, true
}

// startsField reports whether a text begins with the name of a field.
func startsField(text string) bool { return text[0] >= 'a' && text[0] <= 'z' }

// with is the text of a file with other services.
func (p parts) with(services []string) string {
	return p.before + strings.Join(services, "") + p.after
}

// partsParser parses a file in parts: only the services whose text isn't that of one in
// the last file, and those on all processors. If anything is wrong the file is parsed as
// a whole, so errors have their lines.
type partsParser struct {
	limits dataplane.Limits
	// last are the parts of the last file, and known its services by their text.
	last  parts
	known map[string]*lb.Service
}

// Parser returns a function that does as Parse with these limits. It needs less time for a
// file that differs little from the last one. It must not be called concurrently.
func Parser(limits dataplane.Limits) func(name string, data []byte) (*Config, error) {
	p := &partsParser{limits: limits}
	return p.parse
}

func (p *partsParser) parse(name string, data []byte) (*Config, error) {
	if len(data) <= MaxSize {
		if text, found := cut(string(data)); found {
			if c := p.assemble(name, text); c != nil {
				return c, nil
			}
		}
	}
	return Parse(name, data, p.limits)
}

// unknown returns the indexes of the services that have to be parsed: at least one, with
// which the rest of the file is parsed.
func (p *partsParser) unknown(text parts) (indexes []int) {
	same := text.before == p.last.before && text.after == p.last.after
	for i, service := range text.services {
		if p.known[service] == nil || !same {
			indexes = append(indexes, i)
		}
	}
	if len(indexes) == 0 {
		indexes = []int{0}
	}
	return indexes
}

// readsFile reports whether a service has what was read from another file, which may change.
func readsFile(s *lb.Service) bool {
	return s.Health != nil && s.Health.TLS != nil && s.Health.TLS.CA != ""
}

// assemble returns nil if the file has to be parsed as a whole.
func (p *partsParser) assemble(name string, text parts) *Config {
	unknown := p.unknown(text)
	c := p.parseServices(name, text, unknown)
	if c == nil {
		return nil
	}
	parsed := c.Services
	c.Services = make([]lb.Service, len(text.services))
	known := make(map[string]*lb.Service, len(text.services))
	for i, service := range text.services {
		if len(unknown) > 0 && unknown[0] == i {
			c.Services[i], parsed, unknown = parsed[0], parsed[1:], unknown[1:]
		} else {
			c.Services[i] = *p.known[service]
		}
		if !readsFile(&c.Services[i]) {
			known[service] = &c.Services[i]
		}
	}
	if len(c.Services) > p.limits.MaxServices || !distinctServices(c.Services) {
		return nil
	}
	p.last, p.known = text, known
	return c
}

// partSize is the least size of the services of one part in bytes. The rest of the file is
// parsed with each part.
const partSize = 64 << 10

// parseServices returns a configuration with the services at the given indexes, or nil.
func (p *partsParser) parseServices(name string, text parts, indexes []int) *Config {
	size, filled := max(partSize, 8*(len(text.before)+len(text.after))), 0
	var chunks [][]string
	for _, i := range indexes {
		if filled == 0 {
			chunks = append(chunks, nil)
		}
		last := len(chunks) - 1
		chunks[last] = append(chunks[last], text.services[i])
		if filled += len(text.services[i]); filled >= size {
			filled = 0
		}
	}
	parsed := make([]*Config, len(chunks))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, services := range chunks {
		group.Go(func() error {
			c, err := Parse(name, []byte(text.with(services)), p.limits)
			if err == nil && (len(c.Services) != len(services) || c.warnsBehind(strings.Count(text.before, "\n"))) {
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
	}
	return parsed[0]
}

// errWhole says that parts don't say what they do in their file.
var errWhole = errors.New("the file has to be parsed as a whole")

// warnsBehind reports whether there are warnings about lines behind the given one.
func (c *Config) warnsBehind(line int) bool {
	return slices.ContainsFunc(c.Warnings, func(w Warning) bool { return w.Line > line })
}

// distinctServices reports whether services have different names and VIPs.
func distinctServices(services []lb.Service) bool {
	names, vips := make(map[string]bool, len(services)), make(map[lb.VIP]bool, len(services))
	for i := range services {
		names[services[i].Name], vips[services[i].VIP] = true, true
	}
	return len(names) == len(services) && len(vips) == len(services)
}
