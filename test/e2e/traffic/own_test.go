// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Servers in the network of the balancers themselves, at these nodes' own addresses, answer
// through each node: their own kernel gets the packets, and its answers are translated.
func TestServersAtOwnAddresses(t *testing.T) {
	for _, forward := range []lb.Forward{lb.DSR, lb.NAT} {
		t.Run(forward.String(), func(t *testing.T) {
			t.Parallel()
			// The lab is up when each server has answered requests of both families and protocols.
			l := bringUp(t, "own"+forward.String(), withLines(onNodes(workers(t, forward, 2, false))))
			for vip, client := range map[string]string{harness.VIP4: "10.0.1.2", harness.VIP6: "fd00:1::2"} {
				const requests = 40
				seen := l.Gets(t, "client", harness.Origin(vip), requests)
				if len(seen) != 2 {
					t.Errorf("%s: answers of %v, want those of both nodes", vip, seen)
				}
				if from := l.Gets(t, "client", harness.Origin(vip)+"client", requests); forward == lb.DSR && from[client] != requests {
					t.Errorf("%s: servers have seen %v, want %s", vip, from, client)
				} else if from[client] == 0 {
					t.Errorf("%s: servers have seen %v, want %s through their own nodes", vip, from, client)
				}
				l.checkBulk(t, vip)
			}
		})
	}
}

// onNodes moves the first pod of each node of the lab "nodes" into the node's own network.
func onNodes(topology netlab.Topology) netlab.Topology {
	hosts := map[string]*netlab.Host{}
	for i := range topology.Hosts {
		hosts[topology.Hosts[i].Name] = &topology.Hosts[i]
	}
	var nodes [][]netip.Addr // by family
	var names []string
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[name]
		number, is := strings.CutPrefix(name, "lb")
		if !is {
			continue
		}
		var own []netip.Addr
		for _, p := range h.Interfaces[0].Addresses {
			own = append(own, p.Addr())
		}
		pod := hosts["pod"+number+"-1"]
		h.Files = pod.Files
		h.Processes = append(h.Processes, pod.Processes...)
		echo := &h.Processes[len(h.Processes)-1]
		echo.Args = slices.Clone(echo.Args[:5])
		for _, a := range own {
			echo.Args = append(echo.Args, "--listen", netip.AddrPortFrom(a, 7).String())
		}
		nodes, names = append(nodes, own), append(names, pod.Name)
	}
	services := slices.Clone(topology.Services)
	for s := range services {
		backends := services[s].Backends[:0:0]
		for _, own := range nodes {
			backends = append(backends, services[s].Backends[0])
			backends[len(backends)-1].Address = own[s%2]
		}
		services[s].Backends, topology.Probes[s].Answers = backends, names
	}
	topology.SetServices(services)
	for name, h := range hosts {
		if h.Agent == nil || h.Agent.Nodes == nil {
			continue
		}
		h.Agent.Nodes = map[netip.Addr]netip.Addr{}
		for _, own := range nodes {
			for _, a := range own {
				if !slices.ContainsFunc(hosts[name].Interfaces[0].Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
					h.Agent.Nodes[a] = a
				}
			}
		}
	}
	return topology
}
