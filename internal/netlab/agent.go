// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

// AgentFile is the balancer's configuration in its host's directory.
const AgentFile = "fairlead.yaml"

const agentSocket = "agent.sock"

// AgentSettings are what a balancer's configuration says (DESIGN.md §4). A
// topology remembers them for each balancer, so that who changes its services
// later keeps everything else:
//
//	text := topology.Host("lb1").Agent.With(services).YAML()
type AgentSettings struct {
	// Node is the balancer's name. It balances on its interface eth0.
	Node string
	// TunnelEnds are what services in VXLAN or Geneve segments need.
	TunnelEnds []netip.Addr
	// BGP says to whom VIPs are announced; nil: to nobody. A balancer that
	// announces nothing doesn't wait for the lab's traffic to end when it is
	// stopped, since no route would take it elsewhere.
	BGP *bgp.Config
	// Services are what is balanced.
	Services []lb.Service
	// Nodes are the nodes of backends that aren't this one's own, by the backends'
	// addresses: what the services' backends say of them with lb.DNAT.
	Nodes map[netip.Addr]netip.Addr
}

// With returns the settings with other services.
func (s AgentSettings) With(services []lb.Service) AgentSettings {
	s.Services = services
	return s
}

// YAML is the file. Every backend has a line of its own, so that people can
// take one out.
func (s AgentSettings) YAML() string {
	var b strings.Builder
	fmt.Fprintf(&b, "node:\n  name: %s\n  interfaces: [%s]\n", s.Node, eth0)
	if s.BGP == nil {
		b.WriteString("  drainTimeout: 0s\n")
	}
	if len(s.TunnelEnds) > 0 {
		fmt.Fprintf(&b, "  tunnelEnds: %s\n", addressList(s.TunnelEnds))
	}
	b.WriteString("dataplane:\n  kind: xdp\n  xdpMode: auto\n")
	if s.BGP != nil {
		writeBGP(&b, s.BGP)
	}
	b.WriteString("services:\n")
	for _, service := range s.Services {
		writeService(&b, s.seen(service))
	}
	return b.String()
}

// seen is a service as this balancer sees it.
func (s AgentSettings) seen(service lb.Service) lb.Service {
	if service.Forward != lb.DNAT {
		return service
	}
	service.Backends = slices.Clone(service.Backends)
	for i := range service.Backends {
		b := &service.Backends[i]
		b.Node = s.Nodes[b.Address]
	}
	return service
}

func writeService(b *strings.Builder, s lb.Service) {
	fmt.Fprintf(b, "  - name: %s\n    address: %q\n    port: %d\n    protocol: %s\n", s.Name, s.Address, s.Port, s.Protocol)
	if s.Segment.Tagged() {
		fmt.Fprintf(b, "    segment: %s\n", segmentText(s.Segment))
	}
	fmt.Fprintf(b, "    forward: %s\n", s.Forward)
	if s.Affinity != lb.AffinityFlow {
		fmt.Fprintf(b, "    affinity: %s\n", s.Affinity)
	}
	if q := s.QUIC; q != nil {
		fmt.Fprintf(b, "    quic: {configID: %d, serverIDLength: %d, nonceLength: %d}\n", q.ConfigID, q.ServerIDLength, q.NonceLength)
	}
	if s.Unavailable != lb.Drop {
		fmt.Fprintf(b, "    unavailable: %s\n", s.Unavailable)
	}
	if s.MinHealthy > 1 {
		fmt.Fprintf(b, "    minHealthy: %d\n", s.MinHealthy)
	}
	b.WriteString(trackingText(s))
	writeHealth(b, s.Health)
	writeAccess(b, s)
	if len(s.Backends) == 0 {
		b.WriteString("    backends: []\n")
		return
	}
	b.WriteString("    backends:\n")
	for _, backend := range s.Backends {
		fmt.Fprintf(b, "      - {%s}\n", backendText(backend))
	}
}

// writeAccess writes who may use a service, and how much.
func writeAccess(b *strings.Builder, s lb.Service) {
	write := func(field string, given bool, value any) {
		if given {
			fmt.Fprintf(b, "      %s: %v\n", field, value)
		}
	}
	if l := s.Limits; l != (lb.FlowLimits{}) {
		b.WriteString("    limits:\n")
		write("newFlows", l.NewFlows > 0, l.NewFlows)
		write("newFlowsPerSource", l.NewFlowsPerSource > 0, l.NewFlowsPerSource)
	}
	if allow, deny := s.Sources.Allow, s.Sources.Deny; len(allow)+len(deny) > 0 {
		b.WriteString("    sources:\n")
		write("allow", len(allow) > 0, list(allow))
		write("deny", len(deny) > 0, list(deny))
	}
}

func list(prefixes []netip.Prefix) string {
	quoted := make([]string, len(prefixes))
	for i, p := range prefixes {
		quoted[i] = strconv.Quote(p.String())
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// trackingText writes how the service's flows are remembered, as far as it isn't
// by default.
func trackingText(s lb.Service) string {
	text := ""
	if s.Tracking != lb.TrackingMinimal {
		text += fmt.Sprintf("    tracking: %s\n", s.Tracking)
	}
	if s.IdleTimeout != 0 {
		text += fmt.Sprintf("    idleTimeout: %s\n", s.IdleTimeout)
	}
	if s.Learn != 0 {
		text += fmt.Sprintf("    learn: %s\n", s.Learn)
	}
	return text
}

func backendText(b lb.Backend) string {
	text := fmt.Sprintf("address: %q, port: %d, weight: %d", b.Address, b.Port, b.Weight)
	if b.Node.IsValid() {
		text += fmt.Sprintf(", node: %q", b.Node)
	}
	if b.TunnelEnd.IsValid() {
		text += fmt.Sprintf(", tunnelEnd: %q", b.TunnelEnd)
	}
	if !b.MAC.IsZero() {
		text += fmt.Sprintf(", mac: %q", b.MAC)
	}
	if b.Segment.Tagged() {
		text += ", segment: " + segmentText(b.Segment)
	}
	if b.ServerID != "" {
		text += fmt.Sprintf(", serverID: %q", b.ServerID)
	}
	return text
}

// addressList is a list in YAML.
func addressList(addresses []netip.Addr) string {
	quoted := make([]string, len(addresses))
	for i, a := range addresses {
		quoted[i] = strconv.Quote(a.String())
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func segmentText(s lb.Segment) string { return fmt.Sprintf("{type: %s, id: %d}", s.Type, s.ID) }

// agent runs a balancer with the configuration in its directory.
func agent(fairlead string) Process {
	return Process{Name: "agent", Args: []string{
		fairlead, "agent", "--config", AgentFile, "--socket", agentSocket, "--pin-dir", pinDir + "/fairlead",
	}}
}

// tunnelEnd runs the end of the balancers' tunnels on a server in the same
// networks.
func tunnelEnd(fairlead string, vips []netip.Addr, balancers []netip.Prefix) Process {
	args := []string{fairlead, "node", "--interface", eth0}
	for _, v := range vips {
		args = append(args, "--vip", v.String())
	}
	for _, p := range balancers {
		args = append(args, "--balancer", p.Masked().String())
	}
	return Process{Name: "node", Args: args}
}

// echo answers at port 7 of the addresses (RFC 862's port), over UDP and TCP.
func echo(fairlead, name string, addresses []netip.Addr) Process {
	args := []string{fairlead, "lab", "echo", "--name", name}
	for _, a := range addresses {
		args = append(args, "--listen", netip.AddrPortFrom(a, echoPort).String())
	}
	return Process{Name: "echo", Args: args}
}
