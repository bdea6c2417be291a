// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/goccy/go-yaml"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
)

// AgentFile is the balancer's configuration in its host's directory.
const AgentFile = "fairlead.yaml"

// The executables that run in hosts, looked up in PATH.
const (
	fairlead = "fairlead"
	fairlab  = "fairlab"
)

const agentSocket = "agent.sock"

// AgentSettings is a balancer's configuration. A topology keeps it for each balancer,
// so that its services can be changed later:
//
//	text := topology.Host("lb1").Agent.With(services).YAML()
type AgentSettings struct {
	// Node is the balancer's name. It balances on its interface eth0.
	Node string
	// XDPMode is dataplane.xdpMode: "native", "generic" or, by default, "auto".
	XDPMode string
	// FilterPods is dataplane.filterPods.
	FilterPods bool
	// TunnelEnds and TunnelPeers of services in VXLAN or Geneve segments.
	TunnelEnds  []netip.Addr
	TunnelPeers []netip.Prefix
	// BGP announces the VIPs; nil: static routes. Then the agent doesn't wait for the
	// end of traffic when it is stopped, since no route would change.
	BGP *bgp.Config
	// Hook is the program of routes.hook, empty for none; HookTimeout and HookInterval are
	// routes.timeout and routes.interval, 0 for the default.
	Hook                      string
	HookTimeout, HookInterval time.Duration
	Services                  []lb.Service
	// Nodes are the nodes of other nodes' backends by backend address, for lb.DSR.
	Nodes map[netip.Addr]netip.Addr
}

// With returns the settings with other services.
func (s AgentSettings) With(services []lb.Service) AgentSettings {
	s.Services = services
	return s
}

// YAML returns the file.
func (s AgentSettings) YAML() string {
	drainTimeout := ""
	if s.BGP == nil {
		drainTimeout = "0s"
	}
	services := []yaml.MapSlice{}
	for _, service := range s.Services {
		services = append(services, serviceSection(s.withNodes(service)))
	}
	return yamlText(mapping(
		"node", mapping("name", s.Node, "interfaces", []string{eth0}, "drainTimeout", drainTimeout,
			"tunnelEnds", s.TunnelEnds, "tunnelPeers", s.TunnelPeers),
		"dataplane", mapping("kind", "xdp", "xdpMode", cmp.Or(s.XDPMode, "auto"), "filterPods", s.FilterPods),
		"bgp", bgpSection(s.BGP),
		"routes", mapping("hook", s.Hook, "timeout", s.HookTimeout, "interval", s.HookInterval),
		"services", &services,
	))
}

// withNodes sets the nodes of a service's backends.
func (s AgentSettings) withNodes(service lb.Service) lb.Service {
	if service.Forward != lb.DSR {
		return service
	}
	service.Backends = slices.Clone(service.Backends)
	for i := range service.Backends {
		b := &service.Backends[i]
		b.Node = s.Nodes[b.Address]
	}
	return service
}

// agent runs a balancer with the configuration in its directory.
func agent() Process {
	return Process{Name: "agent", Args: []string{
		fairlead, "agent", "--config", AgentFile, "--socket", agentSocket, "--pin-dir", pinDir + "/fairlead",
	}}
}

// tunnelEnd ends the balancers' tunnels on a server.
func tunnelEnd(vips []netip.Addr, balancers []netip.Prefix) Process {
	args := []string{fairlead, "node", "--interface", eth0}
	for _, v := range vips {
		for _, port := range []uint16{webPort, echoPort} {
			for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
				args = append(args, "--vip", fmt.Sprintf("%s/%s", netip.AddrPortFrom(v, port), protocol))
			}
		}
	}
	for _, p := range balancers {
		args = append(args, "--balancer", p.Masked().String())
	}
	return Process{Name: "node", Args: args}
}

// echo answers at ports of the addresses, by default at port 7 (RFC 862's), over UDP and TCP.
func echo(name string, addresses []netip.Addr, ports ...uint16) Process {
	if len(ports) == 0 {
		ports = []uint16{echoPort}
	}
	args := []string{fairlab, "lab", "echo", "--name", name}
	for _, a := range addresses {
		for _, port := range ports {
			args = append(args, "--listen", netip.AddrPortFrom(a, port).String())
		}
	}
	return Process{Name: "echo", Args: args}
}

// Configure replaces the settings of the balancer's agent and returns when they
// are programmed, or have failed.
func (h *HostState) Configure(ctx context.Context, settings AgentSettings) error {
	if err := h.ReplaceFile(AgentFile, settings.YAML()); err != nil {
		return err
	}
	if err := control.Dial(h.Socket).Reload(ctx); err != nil {
		return fmt.Errorf("%s: reload: %w", h.Name, err)
	}
	return nil
}

// Decode decodes the answer of an agent to a query.
func Decode[T any](text []byte, err error) (answer T, _ error) {
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(text, &answer)
}

// AwaitSessions waits until every BGP session of the agents at these control
// sockets is established and, with bfd, monitored by BFD: earlier failures are
// detected later than they should be. An agent without peers is still starting.
// If ctx ends, the error names missing sessions.
func AwaitSessions(ctx context.Context, sockets []string, bfd bool) error {
	for _, socket := range sockets {
		if err := Await(ctx, Poll, func() error { return checkSessions(ctx, socket, bfd) }); err != nil {
			return fmt.Errorf("%s: %w", socket, err)
		}
	}
	return nil
}

// checkSessions returns an error that describes the first session that isn't up.
func checkSessions(ctx context.Context, socket string, monitored bool) error {
	routes, err := Decode[observe.Routes](control.Dial(socket).Routes(ctx))
	if err != nil {
		return err
	}
	if len(routes.Peers) == 0 {
		return errors.New("no peers")
	}
	for _, p := range routes.Peers {
		if p.State != bgp.Established {
			return fmt.Errorf("peer %s: %s: %s", p.Address, p.State, p.Reason)
		}
		if monitored && p.BFD != bgp.BFDUp {
			return fmt.Errorf("peer %s: BFD %s: %s", p.Address, p.BFD, p.BFDReason)
		}
	}
	return nil
}
