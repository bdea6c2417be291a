// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// relays is a table in which pods (10.244.0.0/16) are behind 10.0.0.2, and the node
// 10.0.0.12 is reached along the path that the test says.
func relays(t *testing.T) (_ *table, k *fakeKernel, toNode *path) {
	t.Helper()
	table, k := newFake(t)
	toNode = &path{index: eth0}
	k.routes = func(to netip.Addr) route {
		if to == ip("10.0.0.12") {
			return route{kind: unix.RTN_UNICAST, table: unix.RT_TABLE_MAIN, paths: []path{*toNode}}
		}
		return route{kind: unix.RTN_UNICAST, table: unix.RT_TABLE_MAIN, paths: []path{via(eth0, "10.0.0.2")}}
	}
	k.neighbours[key0("10.0.0.12")] = managed(reachable(macBackend))
	k.neighbours[key0("10.0.0.2")] = managed(reachable(macGateway))
	return table, k, toNode
}

var relayed = Target{Address: ip("10.244.1.2"), Relay: new(ip("10.0.0.12")), Handover: true}

// A relay on the link is resolved for all its targets. Without a direct path to the
// relay the target itself is resolved, and a change of that notifies its service.
func TestRelay(t *testing.T) {
	table, k, toNode := relays(t)
	other := relayed
	other.Address = other.Address.Next()
	vip := vipOf(1)
	for _, got := range table.follow(vip, []Target{relayed, other}) {
		if got.Err != nil || !got.Hop.Relay || got.Hop.Destination != macBackend || got.Hop.Local.IsValid() {
			t.Errorf("on the link: %+v", got)
		}
	}
	if k.lookups != 1 {
		t.Errorf("%d look-ups for one node", k.lookups)
	}
	for name, change := range map[string]path{
		"gateway": via(eth0, "10.0.0.2"), "no XDP": direct(wg0), "provider tags": direct(eth0qinq),
	} {
		*toNode = change
		table.rerouteAll()
		if got := changed(t, table); !slices.Contains(got, vip) {
			t.Errorf("%s: no notification", name)
		}
		got := table.follow(vip, []Target{relayed})[0]
		if got.Err != nil || got.Hop.Relay || got.Hop.Destination != macGateway || !got.Hop.Local.IsValid() {
			t.Errorf("%s: %+v", name, got)
		}
		*toNode = direct(eth0)
		table.rerouteAll()
		if got := changed(t, table); !slices.Contains(got, vip) {
			t.Errorf("after %s: no notification", name)
		}
		if got := table.follow(vip, []Target{relayed})[0]; !got.Hop.Relay {
			t.Errorf("after %s: %+v", name, got)
		}
	}
	if len(table.entries) != 1 {
		t.Errorf("%d entries for a node on the link", len(table.entries))
	}
}

// A relay on the link that is lost leaves no other path to its targets.
func TestRelayLost(t *testing.T) {
	table, _, toNode := relays(t)
	table.follow(vipOf(1), []Target{relayed})
	table.neighbours.changed(key0("10.0.0.12"), managed(neighbour{state: unix.NUD_FAILED}))
	changed(t, table)
	got := table.follow(vipOf(1), []Target{relayed})[0]
	if text(got.Err) != "neighbour 10.0.0.12 on eth0 is unresolved" {
		t.Errorf("%+v", got)
	}
	toNode.down = true
	table.rerouteAll()
	changed(t, table)
	if got := table.follow(vipOf(1), []Target{relayed})[0]; text(got.Err) != "interface eth0 is down" {
		t.Errorf("%+v", got)
	}
}
