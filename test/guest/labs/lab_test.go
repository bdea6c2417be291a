//go:build guest

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Hosts of every lab.
const (
	client   = "client"
	balancer = "lb1"
)

// patience is how long an agent may take to load its program: an emulated processor that
// others keep busy verifies it in half a minute.
const patience = 3 * time.Minute

// servers are the hosts that answer, by their names.
var servers = []string{"server1", "server2"}

// dataplane is that section of an agent's file.
var dataplane = regexp.MustCompile(`(?m)^dataplane:\n( .*\n)+`)

// lab is one balancer with two servers.
type lab struct{ *harness.Lab }

// bringUp builds a lab with a kind of data plane, whose servers end tunnels by devices of the
// kernel. It returns when the balancer uses both servers for all services.
func bringUp(t *testing.T, kind string, forward lb.Forward) lab {
	t.Helper()
	topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: forward, Balancers: 1, Servers: len(servers)})
	if err != nil {
		t.Fatal(err)
	}
	topology.Probes = nil // they would be late for an emulated processor
	for _, name := range servers {
		server := topology.Host(name)
		server.Processes = slices.DeleteFunc(server.Processes, func(p netlab.Process) bool { return p.Name == "node" })
	}
	topology.SetServices(checked(topology.Services))
	lb1 := topology.Host(balancer)
	file := dataplane.ReplaceAllString(lb1.Agent.YAML(), "dataplane: {kind: "+kind+"}\n")
	lb1.Files = map[string]string{netlab.AgentFile: file}
	l := lab{harness.BringUp(t, forward.String(), topology)}
	if forward == lb.IPIP {
		for _, name := range servers {
			l.Run(t, name, "ip", "link", "set", "tunl0", "up")
			l.Run(t, name, "ip", "link", "set", "ip6tnl0", "up")
		}
	}
	l.awaitAgent(t)
	l.AwaitInUse(t, len(servers))
	return l
}

// checked gives services health checks that an emulated processor doesn't fail.
func checked(services []lb.Service) []lb.Service {
	services = slices.Clone(services)
	for i := range services {
		if s := &services[i]; s.Protocol == lb.TCP {
			s.Health = &lb.HealthCheck{
				Type: lb.HealthHTTP, Path: "/", Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 2,
			}
		}
	}
	return services
}

// awaitAgent waits until the agent has programmed all services and attached its program.
func (l lab) awaitAgent(t *testing.T) {
	t.Helper()
	agent := control.Dial(l.State().Host(balancer).Socket)
	ready := harness.Within(patience, func() bool {
		status, err := netlab.Decode[observe.Status](agent.Status(t.Context()))
		attached := status.DataPlane.Kind != "xdp" || len(status.DataPlane.Attachments) > 0
		return err == nil && status.Services.Programmed == len(l.Topology.Services) && attached
	})
	if !ready {
		t.Fatal("the agent isn't ready")
	}
}

// curl fails the test unless requests of curl are answered, every one of them, until each of
// the hosts has answered, and by no other host.
func (l lab) curl(t *testing.T, vip string, hosts ...string) {
	t.Helper()
	const enough, tooMany = 4, 64
	answered := map[string]bool{}
	for n := 0; n < enough || len(answered) < len(hosts); n++ {
		name := strings.TrimSpace(l.Run(t, client, "curl", "--silent", "--show-error", "--max-time", "10", harness.Origin(vip)))
		if !slices.Contains(hosts, name) || n == tooMany {
			t.Fatalf("request %d to %s: answered by %q after %v, want %v", n, vip, name, answered, hosts)
		}
		answered[name] = true
	}
}
