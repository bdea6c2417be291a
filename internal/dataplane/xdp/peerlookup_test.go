// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

func TestRoundOf(t *testing.T) {
	at := func(last byte, flags table.BalancerBackendFlag) slot {
		return slot{Backend: table.Backend{
			BalancerBackend: table.BalancerBackend{Destination: [6]byte{2, 0, 0, 0, 1, last}, Flags: uint8(flags)},
			BalancerEgress:  table.BalancerEgress{Source: [6]byte{2, 0, 0, 0, 1, 0}},
		}}
	}
	relay := table.BalancerBackendFlagBACKEND_RELAY | table.BalancerBackendFlagBACKEND_USABLE
	fallen := func(last byte) slot {
		s := at(last, table.BalancerBackendFlagBACKEND_RELAY)
		s.wasUsable = true
		return s
	}
	lost := func(err error) slot {
		return slot{backend: &lb.Backend{Node: netip.MustParseAddr("10.0.2.12")}, hopErr: err}
	}
	before := at(7, relay)
	before.Destination = [6]byte{2}
	var crowd []slot
	for i := range byte(40) {
		crowd = append(crowd, at(200-i, relay))
	}
	for name, c := range map[string]struct {
		slots []slot
		want  table.BalancerPeerLookup
	}{
		"none":                   {nil, table.BalancerPeerLookup{}},
		"own backends":           {[]slot{at(1, table.BalancerBackendFlagBACKEND_USABLE)}, table.BalancerPeerLookup{}},
		"node that is down":      {[]slot{fallen(1), at(2, relay)}, table.BalancerPeerLookup{Next: 1, Peers: 1}},
		"not up yet":             {[]slot{at(1, table.BalancerBackendFlagBACKEND_RELAY), at(2, relay)}, table.BalancerPeerLookup{Next: 0, Peers: 2}},
		"down, another new":      {[]slot{fallen(1), at(1, table.BalancerBackendFlagBACKEND_RELAY), at(2, relay)}, table.BalancerPeerLookup{Next: 2, Peers: 1}},
		"down, another up":       {[]slot{fallen(1), at(1, relay), at(2, relay)}, table.BalancerPeerLookup{Next: 0, Peers: 2}},
		"all down":               {[]slot{fallen(2), fallen(1)}, table.BalancerPeerLookup{Next: 1, Peers: 2}},
		"lost":                   {[]slot{lost(errLost)}, table.BalancerPeerLookup{}},
		"not reached yet":        {[]slot{at(2, relay), lost(nexthop.ErrPending)}, table.BalancerPeerLookup{Peers: 1, Pending: 1}},
		"next one up":            {[]slot{at(9, relay), at(5, relay), at(7, relay)}, table.BalancerPeerLookup{Next: 1, Peers: 3}},
		"two of one node":        {[]slot{at(9, relay), at(5, relay), at(5, relay)}, table.BalancerPeerLookup{Next: 1, Peers: 2}},
		"from the last round":    {[]slot{before}, table.BalancerPeerLookup{Next: 0, Peers: 1}},
		"rather up":              {[]slot{before, at(9, relay)}, table.BalancerPeerLookup{Next: 1, Peers: 2}},
		"more than are lookedUp": {crowd, table.BalancerPeerLookup{Next: 39, Peers: uint8(table.BalancerPeerLookupLimitPEER_LOOKUP_MAX)}},
	} {
		if got := lookupOrder(c.slots); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
