//go:build guest

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Hosts of every lab.
const (
	client   = "client"
	router   = "router"
	balancer = "lb1"
)

// servers are the hosts that answer, by their names.
var servers = []string{"server1", "server2"}

// linkMTU carries a client's full packet with the outer headers of any tunnel, in bytes.
const linkMTU = 1600

// Bodies of requests, which are files: several full packets, or nothing where packets are counted,
// as kernels merge full ones.
const (
	upload     = "upload"
	uploadSize = 20_000
	noBody     = "/dev/null"
)

// planeSection is the section of an agent's file for the data plane.
var planeSection = regexp.MustCompile(`(?m)^dataplane:\n( .*\n)+`)

// lab is one balancer with its servers. Its agent has a kind of data plane.
type lab struct {
	*harness.Lab
	kind string
}

// ecmp is the lab "ecmp" with one balancer. Its servers end no tunnels by programs.
func ecmp(t *testing.T, forward lb.Forward, servers int) netlab.Topology {
	t.Helper()
	topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: forward, Balancers: 1, Servers: servers, MTU: linkMTU})
	if err != nil {
		t.Fatal(err)
	}
	for i := range topology.Hosts {
		if h := &topology.Hosts[i]; h.Role == netlab.Server {
			h.Processes = slices.DeleteFunc(h.Processes, func(p netlab.Process) bool { return p.Name == "node" })
			h.Interfaces[0].Geneve = 0
		}
	}
	topology.Host(client).Files = map[string]string{upload: strings.Repeat("u", uploadSize)}
	topology.Host(balancer).Files = map[string]string{}
	topology.Probes = nil // they would be late for an emulated processor
	return topology
}

// bringUp builds a lab with a kind of data plane and returns when the agent is ready.
func bringUp(t *testing.T, kind, label string, topology netlab.Topology) lab {
	t.Helper()
	l := lab{&harness.Lab{Drawn: harness.Drawn{Topology: topology}}, kind}
	l.writeFile(topology.Services)
	l.Lab = harness.BringUp(t, label, topology)
	l.awaitAgent(t)
	return l
}

// writeFile gives the agent's file these services, in the topology.
func (l lab) writeFile(services []lb.Service) (text string) {
	l.Topology.SetServices(services)
	lb1 := l.Topology.Host(balancer)
	text = planeSection.ReplaceAllString(lb1.Agent.YAML(), "dataplane: {kind: "+l.kind+"}\n")
	lb1.Files[netlab.AgentFile] = text
	return text
}

// configure replaces the services and returns when they are programmed.
func (l lab) configure(t *testing.T, services []lb.Service) {
	t.Helper()
	l.Write(t, l.State().Host(balancer), l.writeFile(services))
	l.awaitAgent(t)
}

// replace removes the services, so that the balancer forgets where clients' flows go, and
// configures others.
func (l lab) replace(t *testing.T, services []lb.Service) {
	t.Helper()
	l.configure(t, nil)
	l.configure(t, services)
}

// awaitAgent waits until the agent has programmed all services of its file and attached its
// program.
func (l lab) awaitAgent(t *testing.T) {
	t.Helper()
	agent := control.Dial(l.State().Host(balancer).Socket)
	file := harness.Digest(l.Topology.Host(balancer).Files[netlab.AgentFile])
	ready := await.Holds(func() bool {
		status, err := netlab.Decode[observe.Status](agent.Status(t.Context()))
		attached := status.DataPlane.Kind != "xdp" || len(status.DataPlane.Attachments) > 0
		programmed := status.Config.Digest == file && int(status.Services.Programmed) == len(l.Topology.Services)
		return err == nil && programmed && attached
	})
	if !ready {
		t.Fatal("the agent isn't ready")
	}
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

// ip runs commands of ip(8) in a host.
func (l lab) ip(t *testing.T, host string, commands ...string) {
	t.Helper()
	for _, c := range commands {
		l.Run(t, host, append([]string{"ip"}, strings.Fields(c)...)...)
	}
}

// curl fails the test unless requests of curl are answered, every one of them, until each of
// the hosts has answered, and by no other host.
func (l lab) curl(t *testing.T, vip, body string, hosts ...string) {
	t.Helper()
	const enough, tooMany = 4, 64
	answered := map[string]bool{}
	for n := 0; n < enough || len(answered) < len(hosts); n++ {
		name := strings.TrimSpace(l.Run(t, client, "curl", "--silent", "--show-error", "--max-time", "10",
			"--data-binary", "@"+body, harness.Origin(vip)))
		if !slices.Contains(hosts, name) || n == tooMany {
			t.Fatalf("request %d to %s: answered by %q after %v, want %v", n, vip, name, answered, hosts)
		}
		answered[name] = true
	}
}

// checkTraffic checks that the hosts answer, all of them, over TCP and UDP and both families.
func (l lab) checkTraffic(t *testing.T, body string, hosts ...string) {
	t.Helper()
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		l.curl(t, vip, body, hosts...)
		answers := harness.ByServer(l.Echo(t, client, vip, harness.Ports(16)))
		if got := slices.Sorted(maps.Keys(answers)); !slices.Equal(got, hosts) {
			t.Errorf("%s: datagrams are answered by %v", vip, answers)
		}
	}
}

// checkFailure has servers checked, and checks that one without nginx gets no requests until
// nginx is back.
func (l lab) checkFailure(t *testing.T) {
	t.Helper()
	l.configure(t, checked(l.Topology.Services))
	l.AwaitHealth(t, []string{"web", "web6"}, observe.HealthHealthy, observe.HealthHealthy)
	l.KillServer(t, servers[0])
	l.AwaitInUse(t, 1)
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		l.curl(t, vip, upload, servers[1])
	}
	l.StartServer(t, servers[0])
	l.AwaitInUse(t, len(servers))
}

// checkWithoutAgent checks that programmed services work without the agent.
func (l lab) checkWithoutAgent(t *testing.T) {
	t.Helper()
	l.KillAgent(t, l.State().Host(balancer), "agent")
	l.checkTraffic(t, upload, servers...)
}
