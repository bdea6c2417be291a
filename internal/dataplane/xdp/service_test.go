// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// What a failed Delete leaves in the tables is deleted when it is called again, and
// before the VIP gets another service.
func TestDeleteFails(t *testing.T) {
	p := openTestPlane(t, testPins(t))
	svc := manyBackends(vip4, 2)
	svc.Forward = lb.IPIP
	svc.Membership.Self = netip.MustParseAddr("10.0.2.11")
	svc.Membership.Balancers = []netip.Addr{netip.MustParseAddr("10.0.2.12")}
	svc.Sources.Allow = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	closed, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err == nil {
		err = closed.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	fail := func(service *lb.Service, table **ebpf.Map) {
		t.Helper()
		update(t, p, service)
		whole := *table
		*table = closed
		if err := p.Delete(t.Context(), service.VIP); err == nil {
			t.Error("no error although a table can't be written")
		}
		*table = whole
	}
	empty := func(after string) {
		t.Helper()
		for name, m := range map[string]*ebpf.Map{"addresses": p.tables.Maps.Addresses, "peers": p.tables.Maps.Peers} {
			if err := m.NextKey(nil, make([]byte, m.KeySize())); err == nil {
				t.Errorf("after %s table %s is not empty", after, name)
			}
		}
		if _, err := p.tables.Sources.Stage(table.SourceList{}, nil); err != nil || len(p.services) > 0 {
			t.Errorf("after %s: %d services, %v", after, len(p.services), err)
		}
	}
	for name, broken := range map[string]**ebpf.Map{"addresses": &p.addresses.table, "peers": &p.members.table} {
		fail(svc, broken)
		remove(t, p, svc.VIP)
		empty("Delete without " + name)
		fail(svc, broken)
		programmed, err := p.Update(t.Context(), svc)
		if err != nil || programmed.InUse() != len(svc.Backends) {
			t.Errorf("after Update without %s: %d backends in use, %v", name, programmed.InUse(), err)
		}
		number := uint32(0)
		err = p.tables.EachVIP(func(_ table.BalancerVipKey, n uint32) error {
			number = n
			return nil
		})
		if err != nil || number != p.services[svc.VIP].number.Base {
			t.Errorf("after Update without %s: service %d, %v", name, number, err)
		}
		remove(t, p, svc.VIP)
		empty("Update without " + name)
	}
}
