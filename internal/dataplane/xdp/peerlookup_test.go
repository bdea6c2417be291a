// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

func TestRoundOf(t *testing.T) {
	at := func(last byte, flags table.BalancerBackendFlag) slot {
		return slot{Slot: table.Slot{Backend: table.Backend{
			BalancerBackend: table.BalancerBackend{Destination: [6]byte{2, 0, 0, 0, 1, last}, Flags: uint8(flags)},
			BalancerEgress:  table.BalancerEgress{Source: [6]byte{2, 0, 0, 0, 1, 0}},
		}}}
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

// Once the slot of a backend that has left is free, packets are looked up at the next node that
// has a backend.
func TestLookupWithoutFreedSlots(t *testing.T) {
	p := openQuietPlane(t, testPins(t), fixedHops{})
	svc := manyBackends(vip4, 3)
	svc.Forward = lb.DSR
	for i := range svc.Backends {
		svc.Backends[i].Node = netip.AddrFrom4([4]byte{10, 0, 9, byte(1 + i)})
	}
	want := func(when string, want table.BalancerPeerLookup) {
		t.Helper()
		s, err := p.tables.ReadService(p.services[svc.VIP].Number.Base)
		if err != nil || s.PeerLookup != want {
			t.Errorf("%s: %+v, want %+v (%v)", when, s.PeerLookup, want, err)
		}
	}
	update(t, p, svc)
	want("with all backends", table.BalancerPeerLookup{Next: 0, Peers: 3})
	svc.Backends = svc.Backends[1:]
	update(t, p, svc)
	want("while flows of one that left may live", table.BalancerPeerLookup{Next: 0, Peers: 3})
	must(t, p.tables.Grace.Wait(t.Context(), p.tables.Grace.Now()))
	must(t, p.sweeper.sweep(p.clock()+time.Hour))
	want("later", table.BalancerPeerLookup{Next: 1, Peers: 2})
}

// A backend that has left is used for its flows while its node has the service.
func TestDisableFormerNodes(t *testing.T) {
	node := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 2, last}) }
	backend := func(last, on byte) lb.Backend {
		b := lb.Backend{Address: netip.AddrFrom4([4]byte{10, 244, 0, last}), Port: 80}
		if on > 0 {
			b.Node = node(on)
		}
		return b
	}
	const usable = table.BalancerBackendFlagBACKEND_USABLE
	at := func(b lb.Backend, flags table.BalancerBackendFlag) slot {
		s := slot{backend: &b}
		s.Flags = uint8(flags)
		s.Detail.Address, s.Detail.Port = b.Address.As16(), table.WirePort(b.Port)
		return s
	}
	relay := usable | table.BalancerBackendFlagBACKEND_RELAY
	adopted := at(backend(9, 9), relay)
	adopted.backend = nil
	for name, c := range map[string]struct {
		slot      slot
		balancers []netip.Addr
		want      bool
	}{
		"on a node without the service":   {at(backend(2, 2), relay), []netip.Addr{node(1)}, false},
		"on a node that balances":         {at(backend(2, 2), relay), []netip.Addr{node(1), node(2)}, true},
		"on a node with another backend":  {at(backend(2, 3), relay), []netip.Addr{node(1)}, true},
		"still a backend":                 {at(backend(3, 3), relay), []netip.Addr{node(1)}, true},
		"of this node":                    {at(backend(2, 0), usable), []netip.Addr{node(1)}, true},
		"reached without its node":        {at(backend(2, 2), usable), []netip.Addr{node(1)}, true},
		"nodes that balance aren't known": {at(backend(2, 2), relay), nil, true},
		"known to an earlier agent only":  {adopted, []netip.Addr{node(1)}, true},
	} {
		svc := &lb.Service{Balancers: c.balancers, Backends: []lb.Backend{backend(3, 3)}}
		c.slot.left = c.slot.id() != svc.Backends[0].ID()
		slots := []slot{c.slot}
		disableFormerNodes(slots, svc)
		if got := slots[0].usable(); got != c.want {
			t.Errorf("%s: usable %t, want %t", name, got, c.want)
		}
	}
}
