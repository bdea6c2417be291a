// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"maps"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

func addressTable(t *testing.T, p *Plane) map[table.BalancerAddressKey]table.BalancerAddressFlag {
	t.Helper()
	have := map[table.BalancerAddressKey]table.BalancerAddressFlag{}
	var key table.BalancerAddressKey
	var flags uint32
	it := p.tables.Maps.Addresses.Iterate()
	for it.Next(&key, &flags) {
		have[key] = table.BalancerAddressFlag(flags)
	}
	must(t, it.Err())
	return have
}

// The table of addresses has the flags of each address's services, through every
// change and under the next agent.
func TestAddresses(t *testing.T) {
	const usable, reject = table.BalancerAddressFlagADDRESS_USABLE, table.BalancerAddressFlagADDRESS_REJECT
	dir := testPins(t)
	p := openTestPlane(t, dir)
	want := map[table.BalancerAddressKey]table.BalancerAddressFlag{}
	check := func(when string) {
		t.Helper()
		if got := addressTable(t, p); !maps.Equal(got, want) {
			t.Errorf("%s: addresses %v, want %v", when, got, want)
		}
	}
	segment := lb.Segment{Type: lb.SegmentVLAN, ID: 100}
	untagged, tagged := addressKey(lb.VIP{Address: vip4}), addressKey(lb.VIP{Address: vip4, Segment: segment})
	web, empty, tenant := manyBackends(vip4, 2), manyBackends(vip4, 0), manyBackends(vip4, 1)
	empty.Port, empty.Unavailable = 81, lb.Reject
	tenant.Segment = segment

	update(t, p, empty)
	want[untagged] = reject
	check("one without backends")
	update(t, p, web)
	want[untagged] = usable | reject
	check("two services")
	update(t, p, tenant)
	want[tagged] = usable
	check("another segment")

	stray := addressKey(lb.VIP{Address: vip6})
	must(t, p.tables.Maps.Addresses.Put(stray, uint32(usable)))
	must(t, p.Close())
	p = openTestPlane(t, dir)
	check("adopted")
	remove(t, p, empty.VIP)
	want[untagged] = usable
	check("one is gone")
	remove(t, p, web.VIP)
	delete(want, untagged)
	check("both are gone")
	remove(t, p, tenant.VIP)
	delete(want, tagged)
	check("all are gone")
}

// A backend at the address of a VIP is refused as long as there is such a VIP, in whichever
// segment of the network.
func TestBackendAtVIP(t *testing.T) {
	p := openTestPlane(t, testPins(t))
	untagged, tagged, svc := manyBackends(vip4, 1), manyBackends(vip4, 1), manyBackends(vip6, 2)
	tagged.Segment = lb.Segment{Type: lb.SegmentVLAN, ID: 100}
	svc.Backends[1].Address = vip4
	update(t, p, untagged)
	update(t, p, tagged)
	check := func(when string, want int) {
		t.Helper()
		programmed, err := p.Update(t.Context(), svc)
		if err != nil || programmed.InUse() != want {
			t.Errorf("%s: %d backends in use, want %d (%v)", when, programmed.InUse(), want, err)
		}
	}
	check("two VIPs", 1)
	remove(t, p, untagged.VIP)
	check("one VIP", 1)
	remove(t, p, tagged.VIP)
	check("no VIP", 2)
}
