// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/spec"
)

// serviceIndex finds duplicate names and VIPs, and services that can't have one firewall mark.
type serviceIndex struct {
	names map[string]int // line of each service
	vips  map[lb.VIP]vipOwner
	// marked are the services with a firewall mark.
	marked map[uint32][]lb.Service
	// followed are services whose backends are followed.
	followed map[lb.VIP]source.Follow
}

func newServiceIndex() serviceIndex {
	return serviceIndex{names: map[string]int{}, vips: map[lb.VIP]vipOwner{}, marked: map[uint32][]lb.Service{}, followed: map[lb.VIP]source.Follow{}}
}

// vipOwner is the service with a VIP.
type vipOwner struct {
	name string
	line int
}

// readService reads and checks one service.
func (c serviceIndex) readService(v value, s *lb.Service) {
	var declared v1alpha1.FileService
	var follow *source.Follow
	fields := declaredFields(v, &declared)
	list := &fields[slices.IndexFunc(fields, func(f field) bool { return f.name == "backends" })]
	listed := list.read
	list.read = func(v value) {
		if _, ok := v.node.(*ast.MappingNode); ok {
			pointer(readFollow)(v, &follow)
		} else {
			listed(v)
		}
	}
	v.readFields(fields...)
	if h := declared.Health; h != nil && h.TLS != nil && h.TLS.CA != "" {
		h.TLS.CA = v.at("health.tls.ca").readContent(h.TLS.CA)
	}
	var found []lb.FieldError
	*s, found = spec.FileService(&declared)
	v.reportFieldErrors(found)
	v.reportFieldErrors(s.Check())
	// A file has all backends of a service. Other sources may add more later.
	if n := len(s.Backends); n > 0 && s.MinHealthy > n {
		v.at("minHealthy").failf("%d is more than the service's %d backends", s.MinHealthy, n)
	}
	v.reportFieldErrors(v.limits.Check(s))
	if follow != nil {
		s.Ephemeral = true // they exist as long as they are listed
		checkFollow(v, follow, s)
		c.followed[s.VIP] = *follow
	}
	c.add(v, s)
	s.Backends = lb.SortBackends(s.Backends) // as the store has them, which then shares them
}

// add reports a duplicate name or VIP.
func (c serviceIndex) add(v value, s *lb.Service) {
	line := v.part.line(position(v.node).Line)
	if other, taken := c.names[s.Name]; taken {
		v.at("name").failf("%q is already the name of the service on line %d", s.Name, other)
	} else if s.Name != "" {
		c.names[s.Name] = line
	}
	if v.failedAny("address", "port", "protocol", "segment", "segment.type", "segment.id") {
		return
	}
	if other, taken := c.vips[s.VIP]; taken {
		v.at("address").failf("%s is already the VIP of service %q on line %d", s.VIP, other.name, other.line)
		return
	}
	c.vips[s.VIP] = vipOwner{name: cmp.Or(s.Name, v.path), line: line}
	if mark := s.FirewallMark; mark != 0 {
		v.at("firewallMark").check(s.Alike(c.marked[mark]...))
		c.marked[mark] = append(c.marked[mark], *s)
	}
}

// resolve makes a path absolute; it is relative to the configuration file's folder.
func (v value) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(v.file), path)
}

// readContent returns the content of a file.
func (v value) readContent(path string) string {
	path = v.resolve(path)
	content, err := readFile(path)
	switch {
	case err != nil:
		v.failf("%w", err)
	case len(content) == 0:
		v.failf("%s: the file is empty", path)
	}
	return content
}
