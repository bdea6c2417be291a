// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
	"fairlead.io/fairlead/test/golden"
)

// networks are the columns of the table in docs/guides/clouds.md.
var networks = []string{
	"one Ethernet network", "routed, with BGP",
	"cloud, no checks", "cloud, servers checked", "cloud, all checked",
}

// Which mode works in which network, as the table in the documentation says: real requests
// in networks with and without a common layer 2, and with a router that checks addresses.
func TestNetworks(t *testing.T) {
	t.Parallel()
	harness.NeedRoot(t)
	modes := []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve, lb.NAT, lb.DSR}
	var mu sync.Mutex
	rows := map[lb.Forward]string{}
	t.Run("modes", func(t *testing.T) {
		for _, forward := range modes {
			t.Run(forward.String(), func(t *testing.T) {
				t.Parallel()
				cells := []string{ethernet(t, forward), routed(t, forward)}
				cells = append(cells, clouds(t, forward)...)
				mu.Lock()
				defer mu.Unlock()
				rows[forward] = fmt.Sprintf("| `%s` | %s |\n", forward, strings.Join(cells, " | "))
			})
		}
	})
	table := "| mode | " + strings.Join(networks, " | ") + " |\n" + strings.Repeat("| --- ", len(networks)+1) + "|\n"
	for _, forward := range modes {
		table += rows[forward]
	}
	golden.Parts(t, "../../../docs/guides/clouds.md", "<!-- made by go test ./test/e2e/traffic -run TestNetworks -update -->\n", table)
}

// ethernet is the outcome where all hosts are on one switch.
func ethernet(t *testing.T, forward lb.Forward) string {
	if forward == lb.DSR {
		return bringUp(t, "switch-dsr", workers(t, forward, 2, false)).outcome(t)
	}
	topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: forward, Balancers: 1, Servers: 2})
	if err != nil {
		t.Fatal(err)
	}
	return bringUp(t, "switch-"+forward.String(), topology).outcome(t)
}

// routed is the outcome where a router that learns the VIPs' routes is between all hosts.
func routed(t *testing.T, forward lb.Forward) string {
	topology := cloud(t, forward, netlab.FRR)
	topology.Learned, topology.Probes = nil, nil
	return bringUp(t, "routed-"+forward.String(), topology).outcome(t)
}

// clouds are the outcomes in a cloud that checks no machine, the servers, and all machines.
func clouds(t *testing.T, forward lb.Forward) (outcomes []string) {
	topology := cloud(t, forward, "")
	topology.Probes = nil
	l := bringUp(t, "cloud-"+forward.String(), topology)
	for _, checked := range [][]netlab.Role{nil, {netlab.Server}, {netlab.Server, netlab.Balancer}} {
		now := cloud(t, forward, "", checked...)
		l.Run(t, "router", "nft", "flush ruleset; "+now.Host("router").Rules)
		outcomes = append(outcomes, l.outcome(t))
	}
	return outcomes
}

func cloud(t *testing.T, forward lb.Forward, router netlab.RouterKind, checked ...netlab.Role) netlab.Topology {
	t.Helper()
	topology, err := netlab.Cloud(netlab.CloudOptions{Forward: forward, Balancers: 1, Servers: 2, Router: router, Checked: checked})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

// outcome is a cell of the table. A mode works if all requests are answered, and doesn't if
// none is, for a reason that is found in the lab.
func (l *lab) outcome(t *testing.T) (cell string) {
	t.Helper()
	for _, h := range l.Hosts(netlab.Balancer) {
		harness.Until(t, h.Name+" has its services", func() bool {
			status, err := netlab.Decode[observe.Status](control.Dial(h.Socket).Status(t.Context()))
			return err == nil && int(status.Services.Programmed) == len(l.Topology.Services)
		})
	}
	answered, obstacle := 0, ""
	requests := []func() error{
		func() error { return l.getOnce(t, harness.VIP4) },
		func() error { return l.getOnce(t, harness.VIP6) },
		func() error { return l.echoOnce(t, harness.VIP4) },
		func() error { return l.echoOnce(t, harness.VIP6) },
	}
	decided := await.Holds(func() bool {
		answered = 0
		for _, request := range requests {
			if request() == nil {
				answered++
			}
		}
		obstacle = l.obstacle(t) // of these requests, or of earlier ones whose answers come now
		return answered == len(requests) || answered == 0 && obstacle != ""
	})
	if !decided {
		t.Fatalf("%d of %d requests are answered, obstacle %q", answered, len(requests), obstacle)
	}
	switch {
	case answered == 0:
		return "no: " + obstacle
	case l.Topology.Services[0].Forward == lb.NAT || l.seenAs(t) == "10.0.1.2":
		return "yes"
	default:
		return "yes, as `nat`"
	}
}

// getOnce and echoOnce send one request.
func (l *lab) getOnce(t *testing.T, vip string) error {
	_, err := l.Get(t.Context(), "client", harness.Origin(vip))
	return err
}

func (l *lab) echoOnce(t *testing.T, vip string) error {
	conn, err := l.Dial(t.Context(), "client", "udp", net.JoinHostPort(vip, "7"))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = exchangeOnce(conn, []byte("hello"))
	return err
}

// seenAs is the client's address as a server sees it.
func (l *lab) seenAs(t *testing.T) (address string) {
	t.Helper()
	for address := range l.Gets(t, "client", harness.Origin(harness.VIP4)+"client", 1) {
		return address
	}
	return ""
}

// counted is a counter of the router's rules that has counted.
var counted = regexp.MustCompile(`counter (\w+) \{\s+packets [1-9]`)

// obstacle is why requests can't be answered; empty if nothing is known.
func (l *lab) obstacle(t *testing.T) string {
	t.Helper()
	for _, h := range l.Hosts(netlab.Balancer) {
		for _, b := range harness.Backends(t, &h, "web") {
			if !b.InUse && strings.Contains(b.Reason, "needs it directly connected") {
				return "next hop"
			}
		}
	}
	obstacle := ""
	for _, found := range counted.FindAllStringSubmatch(l.Run(t, "router", "nft", "list", "counters"), -1) {
		if found[1] == "foreign" {
			return "destination"
		}
		obstacle = "source"
	}
	return obstacle
}
