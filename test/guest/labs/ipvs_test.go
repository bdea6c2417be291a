//go:build guest && amd64

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
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
	_, table, _ := strings.Cut(l.Run(t, balancer, "ipvsadm", "-L", "-n"), "\n") // without the version
	var lines strings.Builder
	for line := range strings.Lines(table) {
		lines.WriteString("\n" + strings.Join(strings.Fields(line), " "))
	}
	if got := lines.String() + "\n"; got != table44 {
		t.Errorf("ipvsadm prints%s\nwant%s", got, table44)
	}
}
