// SPDX-License-Identifier: Apache-2.0

// Package file is the source of a node that no orchestrator rules: one YAML
// file (DESIGN.md §4).
//
// It stands at the beginning of the story of ARCHITECTURE.md. Parse reads the
// file strictly and names all of its errors by line and column; Source follows
// the file and hands what it holds to the store. A file with an error is
// refused whole, and what runs goes on running.
package file

import (
	"fmt"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Config is what a configuration file says, with all defaults filled in.
type Config struct {
	Node      Node
	Dataplane Dataplane
	Observe   Observe
	// BGP is nil if the file has no such section.
	BGP *bgp.Config
	// Services are sound (lb.Service.Check) and within the data plane's limits;
	// their names and their VIPs are distinct.
	Services []lb.Service
	// Warnings are in the order of the file.
	Warnings []Warning
}

// Backends counts the backends of all services.
func (c *Config) Backends() int {
	n := 0
	for _, s := range c.Services {
		n += len(s.Backends)
	}
	return n
}

func (c *Config) warned() []Warning { return c.Warnings }

func (c *Config) size() []any {
	return []any{"services", len(c.Services), "backends", c.Backends()}
}

// Parse reads a configuration for a data plane of the given limits. The name is
// the file's in errors, which are always Errors: all that the file has, or only
// the first where it is not YAML.
func Parse(name string, data []byte, limits dataplane.Limits) (*Config, error) {
	return parse(&decoder{file: name, limits: limits}, data, readConfig)
}

func parse(d *decoder, data []byte, read func(value, *Config)) (*Config, error) {
	var c Config
	if tree := d.parseTree(data); tree != nil {
		read(value{decoder: d, node: tree}, &c)
	}
	if d.sort(); len(d.errs) > 0 {
		return nil, d.errs
	}
	c.Warnings = d.warnings
	return &c, nil
}

// readConfig reads the whole document. The services have to be there, be it as
// an empty list: a file that was cut short must not end them all.
func readConfig(v value, c *Config) {
	c.setDefaults()
	known := newCatalogue()
	v.readFields(
		required("node", c.Node.read),
		optional("dataplane", c.Dataplane.read),
		optional("observe", c.Observe.read),
		optional("bgp", announcing(&c.BGP)),
		required("services", func(v value) {
			list(&c.Services, known.readService)(v)
			if n, most := len(c.Services), v.limits.MaxServices; n > most {
				v.failf("%d services are too many: this data plane serves at most %d", n, most)
			}
		}),
	)
	c.checkTunnelEnds(v)
}

func (c *Config) setDefaults() {
	c.Dataplane = Dataplane{Kind: KindAuto, XDPMode: XDPAuto, Flows: defaultFlows, NATSessions: defaultFlows}
	c.Observe = Observe{Listen: defaultListen()}
}

// checkTunnelEnds refuses services whose packets would arrive nowhere.
func (c *Config) checkTunnelEnds(v value) {
	if len(c.Node.TunnelEnds) > 0 || v.at("node.tunnelEnds").unread() {
		return
	}
	for i := range c.Services {
		segment := c.Services[i].Segment
		if field := v.at(fmt.Sprintf("services[%d].segment.type", i)); segment.Overlay() && !field.unread() {
			field.failf("%s frames arrive at tunnel end points of this node: node.tunnelEnds has none", segment.Type)
		}
	}
}
