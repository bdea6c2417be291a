//go:build guest && amd64

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// The same as TestXDP through the kernel's IPVS.
func TestIPVS(t *testing.T) {
	for _, forward := range []lb.Forward{lb.NAT, lb.IPIP, lb.L2DSR} {
		t.Run(forward.String(), func(t *testing.T) {
			l := bringUp(t, "ipvs", forward.String(), ecmp(t, forward, len(servers)))
			for _, name := range servers {
				l.ip(t, name, "link set tunl0 up", "link set ip6tnl0 up")
			}
			l.AwaitInUse(t, len(servers))
			l.checkTraffic(t, upload, servers...)
			l.checkFailure(t)
			l.checkWithoutAgent(t)
		})
	}
}

// An agent with the rights of a pod, CAP_NET_ADMIN and a /proc/sys that is read-only: modes without translation work as
// they are, and nat once its settings are made from outside.
func TestIPVSConfined(t *testing.T) {
	topology := ecmp(t, lb.IPIP, len(servers))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent := &topology.Host(balancer).Processes[0]
	agent.Args, agent.Env = append([]string{self}, agent.Args...), append(agent.Env, confinedEnv+"=1")
	l := bringUp(t, "ipvs", "confined", topology)
	for _, name := range servers {
		l.ip(t, name, "link set tunl0 up", "link set ip6tnl0 up")
	}
	l.AwaitInUse(t, len(servers))
	l.checkTraffic(t, upload, servers...)
	in := func(forward lb.Forward) []lb.Service {
		services := slices.Clone(topology.Services)
		for i := range services {
			services[i].Forward = forward
		}
		return services
	}
	l.configure(t, in(lb.L2DSR))
	l.checkTraffic(t, upload, servers...)
	h := l.State().Host(balancer)
	l.Write(t, h, l.writeFile(in(lb.NAT)))
	harness.Until(t, "nat is refused", func() bool {
		return strings.Contains(harness.Services(t, h)["web"].Error, "nat needs net.ipv4.vs.conntrack=1: /proc/sys can't be written here")
	})
	for _, name := range []string{"ipv4/vs/conntrack", "ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		l.Sysctl(t, balancer, name, "1")
	}
	l.awaitAgent(t)
}

// figure44 is a service as in figure 4.4 of Takahashi, "A Study on Portable Load
// Balancer for Container Clusters", and table44 how ipvsadm prints it.
const (
	figure44 = `node: {name: lb1, interfaces: [eth0], drainTimeout: 0s}
dataplane: {kind: ipvs}
services:
  - name: web
    address: 10.1.1.1
    port: 80
    forward: nat
    scheduler: lc
    firewallMark: 1
    backends:
      - {address: 172.16.21.2, port: 80}
      - {address: 172.16.80.2, port: 80}
`
	table44 = `
Prot LocalAddress:Port Scheduler Flags
-> RemoteAddress:Port Forward Weight ActiveConn InActConn
FWM 1 lc
-> 172.16.21.2:80 Masq 1 0 0
-> 172.16.80.2:80 Masq 1 0 0
`
)

func TestFigure44(t *testing.T) {
	topology := ecmp(t, lb.NAT, 1)
	topology.Host(balancer).Files[netlab.AgentFile] = figure44
	topology.Services = topology.Services[:1]
	l := lab{harness.BringUp(t, "figure", topology), "ipvs"}
	l.awaitAgent(t)
	if got := l.ipvsadm(t); got != table44 {
		t.Errorf("ipvsadm prints%s\nwant%s", got, table44)
	}
}

// ipvsadm returns the table of IPVS, without the version.
func (l lab) ipvsadm(t *testing.T) string {
	t.Helper()
	_, table, _ := strings.Cut(l.Run(t, balancer, "ipvsadm", "-L", "-n"), "\n")
	var lines strings.Builder
	for line := range strings.Lines(table) {
		lines.WriteString("\n" + strings.Join(strings.Fields(line), " "))
	}
	return lines.String() + "\n"
}

// followed is a balancer in a pod whose servers are the pods of a Service. The agent's API server is api.
const followed = `node: {name: lb1, interfaces: [eth0], drainTimeout: 0s}
dataplane: {kind: ipvs}
services:
  - name: web
    address: 10.1.1.1
    port: 80
    forward: nat
    scheduler: rr
    backends: {service: shop, port: http}
`

// IPVS has a table as in figure 4.4 while pods come and go: an EndpointSlice changes it, and packets follow.
func TestIPVSFollowsService(t *testing.T) {
	topology := ecmp(t, lb.NAT, len(servers))
	lb1 := topology.Host(balancer)
	lb1.Files[netlab.AgentFile], lb1.Files["kubeconfig"] = followed, kubeconfig
	lb1.Processes[0].Args = append(lb1.Processes[0].Args, "--kubeconfig", "kubeconfig", "--namespace", apiNamespace)
	topology.Services = topology.Services[:1]
	l := lab{harness.BringUp(t, "follow", topology), "ipvs"}
	api := newAPI(t, l)
	one, two := topology.Services[0].Backends[0].Address.String(), topology.Services[0].Backends[1].Address.String()
	for _, step := range []struct {
		endpoints []endpoint
		weights   map[string]int
		answer    []string
	}{
		{[]endpoint{{one, false}}, map[string]int{one: 1}, servers[:1]},
		{[]endpoint{{one, false}, {two, false}}, map[string]int{one: 1, two: 1}, servers},
		{[]endpoint{{one, true}, {two, false}}, map[string]int{one: 0, two: 1}, servers[1:]},
		{[]endpoint{{two, false}}, map[string]int{two: 1}, servers[1:]},
		{[]endpoint{{one, false}, {two, false}}, map[string]int{one: 1, two: 1}, servers},
	} {
		api.set(step.endpoints)
		var want strings.Builder
		want.WriteString("\nProt LocalAddress:Port Scheduler Flags\n-> RemoteAddress:Port Forward Weight ActiveConn InActConn\nTCP 10.1.1.1:80 rr\n")
		for _, address := range slices.Sorted(maps.Keys(step.weights)) {
			fmt.Fprintf(&want, "-> %s:8080 Masq %d\n", address, step.weights[address])
		}
		var got string
		if !await.Holds(func() bool {
			got = connections.ReplaceAllString(l.ipvsadm(t), "$1")
			return got == want.String()
		}) {
			t.Fatalf("ipvsadm prints%s\nwant%s", got, want.String())
		}
		if answers := l.Gets(t, client, harness.Origin(harness.VIP4), 10); !slices.Equal(slices.Sorted(maps.Keys(answers)), step.answer) {
			t.Errorf("answers by %v, want %v", answers, step.answer)
		}
	}
}

// connections are the numbers of connections of a server.
var connections = regexp.MustCompile(`(?m)(Masq \d+) \d+ \d+$`)
