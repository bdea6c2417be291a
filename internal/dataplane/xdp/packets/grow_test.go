// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
)

// openSized opens a plane with tables of these sizes, or larger ones that are pinned.
func openSized(t *testing.T, dir string, services, backends int) *xdp.Unattached {
	t.Helper()
	capacity := testCapacity
	capacity.Services, capacity.Backends, capacity.RingEntries = services, backends, 0
	return openPlane(t, dir, newStaticHops(), capacity, func() error { return nil })
}

// Tables of services and backends become larger at a restart: flows stay with their backends
// and counters continue. Tables don't become smaller, as their last elements may be in use.
func TestTablesGrow(t *testing.T) {
	dir := testPins(t)
	const services = 60 // of 64: VIPs are often not in their first places
	service := func(i int) *lb.Service {
		s := manyBackends([]netip.Addr{vip4, vip6}[i%2], 4)
		s.Port += uint16(i)
		return s
	}
	client := func(i int) netip.AddrPort { return []netip.AddrPort{client4, client6}[i%2] }
	p := openSized(t, dir, 64, 256)
	chose := map[lb.VIP]lb.BackendID{}
	for i := range services {
		s := service(i)
		if i == 0 { // the only one with server IDs
			s.Protocol, s.QUIC = lb.UDP, &lb.QUIC{ServerIDLength: 1, NonceLength: 4}
			s.Backends[1].ServerID = lb.ServerID("\x07")
		}
		update(t, p, s)
		var found bool
		if chose[s.VIP], found = chosen(t, p, s.VIP, client(i), s.Backends); !found {
			t.Fatalf("%s: no backend", s.VIP)
		}
	}
	before := stats(t, p)
	for _, size := range []struct{ services, backends, hasServices, hasBackends int }{
		{64, 1 << 10, 64, 1 << 10}, {1 << 10, 1 << 10, 1 << 10, 1 << 10}, {8, 16, 1 << 10, 1 << 10}, {1 << 13, 1 << 12, 1 << 13, 1 << 12},
	} {
		must(t, p.Close())
		p = openSized(t, dir, size.services, size.backends)
		if c := p.Tables.Capacity; c.Services != size.hasServices || c.Backends != size.hasBackends || c.RingEntries < 128*size.hasBackends {
			t.Errorf("capacity %+v, want %+v", c, size)
		}
		for vip, was := range before.Services {
			if got := stats(t, p).Services[vip]; got.Traffic != was.Traffic || got.Packets == 0 {
				t.Errorf("%+v: %s: traffic %+v, was %+v", size, vip, got.Traffic, was.Traffic)
			}
		}
		var key, value []byte
		if it := p.Tables.Maps.Servers.Iterate(); !it.Next(&key, &value) {
			t.Errorf("%+v: no server id, error %v", size, it.Err())
		}
		for i := range services {
			s := service(i)
			if i == 0 {
				s.Protocol = lb.UDP
			}
			if got, _ := chosen(t, p, s.VIP, client(i), s.Backends); got != chose[s.VIP] {
				t.Errorf("%+v: %s: backend %s, was %s", size, s.VIP, got, chose[s.VIP])
			}
		}
		before = stats(t, p)
	}
	for i := range 2 * services { // changes, and new ones
		update(t, p, service(i+1))
	}
}

// Errors of full tables name the setting.
func TestFullTables(t *testing.T) {
	p := openSized(t, testPins(t), 2, 256)
	for _, one := range []struct {
		vip      netip.Addr
		port     uint16
		backends int
		want     string
	}{
		{vip4, 1, 200, ""},
		{vip4, 2, 100, "table backend_stats is full: no 100 elements in a row: raise dataplane.backends"},
		{vip4, 2, 1, ""},
		{vip4, 3, 1, "table services is full: no 1 elements in a row: raise dataplane.services"},
	} {
		s := manyBackends(one.vip, one.backends)
		s.Port = one.port
		_, err := p.Update(context.Background(), s)
		if one.want == "" && err != nil || one.want != "" && (err == nil || !strings.HasSuffix(err.Error(), one.want)) {
			t.Errorf("%+v: error %v", one, err)
		}
	}
}
