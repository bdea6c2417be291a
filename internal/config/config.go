// SPDX-License-Identifier: Apache-2.0

// Package config reads and follows the YAML configuration file of an agent or of
// a route reflector. Parsing is strict: all errors are reported, each with line
// and column, and a file with an error is rejected as a whole, so that the
// running configuration stays. Package cmd and the agent call it.
package config

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/host/file"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
)

// Config is a parsed configuration file with all defaults filled in.
type Config struct {
	Node      Node
	Dataplane Dataplane
	Observe   Observe
	// BGP is nil if the file has no such section.
	BGP *bgp.Config
	// Routes is nil if the file has no such section, as it is with BGP.
	Routes *Routes
	// APIServer has the services; nil if the file has them.
	APIServer *source.Server
	// Services are valid (lb.Service.Check) and within the data plane's limits;
	// their names and VIPs are distinct.
	Services []lb.Service
	// Followed are the services without backends here, as these are followed.
	Followed map[lb.VIP]source.Follow
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

// Update returns the routes of the file, and the difference between its services and an
// applied configuration's: all services if applied is nil.
func (c *Config) Update(applied *Config) source.Update {
	u := source.Update{Whole: applied == nil, Changed: c.Services}
	if applied != nil {
		u.Changed, u.Removed = difference(applied.Services, c.Services)
	}
	if c.BGP != nil {
		u.Routes = &source.Routes{Peers: c.BGP.Peers, Policies: c.BGP.Policies, ShutdownDelay: c.BGP.ShutdownDelay}
	}
	return u
}

// difference returns new and changed services, and the VIPs of removed ones.
func difference(before, now []lb.Service) (changed []lb.Service, removed []lb.VIP) {
	for len(before) > 0 && len(now) > 0 && same(&before[0], &now[0]) {
		before, now = before[1:], now[1:]
	}
	for len(before) > 0 && len(now) > 0 && same(&before[len(before)-1], &now[len(now)-1]) {
		before, now = before[:len(before)-1], now[:len(now)-1]
	}
	known := make(map[lb.VIP]*lb.Service, len(before))
	for i := range before {
		known[before[i].VIP] = &before[i]
	}
	for i := range now {
		if was := known[now[i].VIP]; was == nil || !same(was, &now[i]) {
			changed = append(changed, now[i])
		}
		delete(known, now[i].VIP)
	}
	return changed, slices.SortedFunc(maps.Keys(known), lb.VIP.Compare)
}

// same reports whether two services are equal. Those from the same text, as nearly all are
// after a change, share their backends, and aren't compared.
func same(a, b *lb.Service) bool {
	shared := len(a.Backends) > 0 && len(b.Backends) > 0 && &a.Backends[0] == &b.Backends[0]
	return shared || a.Equal(b)
}

func (c *Config) warnings() []Warning { return c.Warnings }

func (c *Config) size() []any {
	return []any{"services", len(c.Services), "backends", c.Backends()}
}

// Parse reads a configuration for a data plane with the given limits, or with its kind's if
// limits of several kinds are joined. Errors refer to the file by name and are of type Errors:
// all errors of the file, or only the first one if the file is not YAML.
func Parse(name, text string, limits dataplane.Limits) (*Config, error) {
	c := &Config{}
	return parse(&decoder{file: name, limits: limits, warnings: &c.Warnings, services: newServiceIndex()}, text, c, readConfig)
}

// parse reads the only document of a file.
func parse[T any](d *decoder, text string, to *T, read reader[T]) (*T, error) {
	if tree := d.parseTree(text); tree != nil {
		read(value{decoder: d, node: tree}, to)
	}
	if d.sort(); len(d.errs) > 0 {
		return nil, d.errs
	}
	return to, nil
}

// readConfig reads the whole document. Without an API server the list of services is required, even
// if empty: a truncated file must not remove all services. Services are read last, because their
// valid fields depend on the kind of data plane.
func readConfig(v value, c *Config) {
	c.setDefaults()
	var services value
	v.readFields(
		required("node", &c.Node, readNode),
		optional("dataplane", &c.Dataplane, readDataplane),
		optional("observe", &c.Observe, observe),
		optional("bgp", &c.BGP, pointer(readBGP)),
		optional("routes", &c.Routes, pointer(readRoutes)),
		optional("apiServer", &c.APIServer, pointer(readAPIServer)),
		optional("services", &services, func(v value, to *value) { *to = v }),
	)
	c.checkServices(v, services)
	if services.node != nil {
		v.limits = v.limits.Of(string(c.Dataplane.Kind))
		list(v.services.readService)(services, &c.Services)
		if len(v.services.followed) > 0 {
			c.Followed = v.services.followed
		}
	}
	c.checkTunnelEnds(v)
	c.checkRoutes(v)
	if !v.failedAny("services", "dataplane", "dataplane.services", "dataplane.backends") {
		v.at("services").check(c.checkCapacity())
	}
}

// checkCapacity returns an error if there are more services or backends than
// the data plane is configured for.
func (c *Config) checkCapacity() error {
	if n, most := len(c.Services), c.Dataplane.Services; n > most {
		return fmt.Errorf("%d services are too many: dataplane.services is %d", n, most)
	}
	if n, most := c.Backends(), c.Dataplane.Backends; n > most {
		return fmt.Errorf("%d backends are too many: dataplane.backends is %d", n, most)
	}
	return nil
}

func (c *Config) setDefaults() {
	c.Dataplane = Dataplane{
		Kind: KindAuto, XDPMode: XDPAuto, Services: defaultServices, Backends: defaultBackends, Flows: defaultFlows, NATSessions: defaultFlows,
	}
	c.Observe = Observe{Listen: defaultListen()}
}

// checkTunnelEnds rejects services in overlay segments if the node has no tunnel
// end point to receive their frames.
func (c *Config) checkTunnelEnds(v value) {
	if len(c.Node.TunnelEnds) > 0 || v.at("node.tunnelEnds").failedWithin() {
		return
	}
	for i := range c.Services {
		segment := c.Services[i].Segment
		field := v.at(fmt.Sprintf("services[%d].segment.type", i))
		field.path = fmt.Sprintf("services[%d].segment.type", v.part.first+i)
		if segment.Overlay() && !field.failedWithin() {
			field.failf("%s frames arrive at tunnel end points of this node: node.tunnelEnds has none", segment.Type)
		}
	}
}

// Load reads a configuration file once and parses it, for example by ParseKubernetes.
func Load[C any](path string, parse func(name, text string) (C, error)) (config C, err error) {
	text, err := readFile(path)
	if err != nil {
		return config, err
	}
	return parse(path, text)
}

// Either is the configuration of a node or of a reflector; the other is nil.
type Either struct {
	Node      *Config
	Reflector *Reflector
}

// ParseEither does as Parser, or ParseReflector for a file with the section "reflector".
func ParseEither(name, text string, limits dataplane.Limits) (e Either, err error) {
	if hasField(text, "reflector") {
		e.Reflector, err = ParseReflector(name, text)
	} else {
		e.Node, err = Parser(limits)(name, text)
	}
	return e, err
}

// hasField reports whether a file has a top-level field of that name.
func hasField(text, name string) bool {
	mapping, ok := new(decoder).parseTree(text).(*ast.MappingNode)
	return ok && slices.ContainsFunc(mapping.Values, func(entry *ast.MappingValueNode) bool {
		return entry.Key.GetToken().Value == name
	})
}

// readFile reads a regular file of at most MaxSize bytes that has no writer.
func readFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: not a regular file", path)
	}
	if info.Size() > MaxSize {
		return "", fmt.Errorf("%s: %d bytes are too many: want at most %d", path, info.Size(), MaxSize)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := file.Lease(f); err != nil {
		return "", err
	}
	var text strings.Builder
	text.Grow(int(info.Size())) // large files aren't copied as they are read
	_, err = io.Copy(&text, io.LimitReader(f, MaxSize))
	return text.String(), err
}

// autoInterfaces selects the interface that has the node's address.
const autoInterfaces = "auto"

// ParseKubernetes reads the file of a node of a Kubernetes cluster, which has only
// the node's local settings: name, services, peers and policies come from the
// cluster. Node.Interfaces is empty if the agent has to detect the interface, and
// BGP.RouterID is invalid if it is the node's address. The file may be empty.
func ParseKubernetes(name, text string) (*Config, error) {
	c := &Config{}
	return parse(&decoder{file: name, mayBeEmpty: true, warnings: &c.Warnings}, text, c, readKubernetes)
}

func readKubernetes(v value, c *Config) {
	c.setDefaults()
	c.Node.setDefaults()
	v.readFields(
		optional("node", &c.Node, readKubernetesNode),
		optional("dataplane", &c.Dataplane, readDataplane),
		optional("observe", &c.Observe, observe),
		optional("bgp", &c.BGP, pointer(readKubernetesBGP)),
		notAllowed("routes", "with --kubernetes routes are announced by BGP"),
		notAllowed("apiServer", "with --kubernetes services are the cluster's Services"),
		notAllowed("services", "with --kubernetes services are the cluster's Services"),
	)
}

func readKubernetesNode(v value, n *Node) {
	v.readFields(append(n.common(),
		notAllowed("name", "with --kubernetes the node's name is that of its Node, see --node-name"),
		optional("interfaces", &n.Interfaces, func(v value, to *[]string) {
			if word, ok := v.node.(*ast.StringNode); !ok || word.Value != autoInterfaces {
				interfaces(v, to)
			}
		}),
	)...)
	n.checkTunnels(v)
}

// readKubernetesBGP reads the settings of the node's own BGP speaker.
func readKubernetesBGP(v value, c *bgp.Config) {
	v.readFields(
		required("asn", &c.ASN, number[uint32](1, bgp.MaxASN)),
		optional("routerID", &c.RouterID, identifier("router id")),
		shutdownDelay(c),
		notAllowed("peers", "with --kubernetes peers are the cluster's BGPPeers"),
		notAllowed("announce", "with --kubernetes AddressPools define how their addresses are announced"),
	)
}
