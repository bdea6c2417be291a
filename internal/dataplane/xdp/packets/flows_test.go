// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
)

func flows(t *testing.T, p *xdp.Unattached, query dataplane.FlowQuery) dataplane.Flows {
	t.Helper()
	found, err := p.Flows(context.Background(), query)
	must(t, err)
	return found
}

// Recorded flows are listed with the backend that packets go to, filtered and
// limited by the query.
func TestFlows(t *testing.T) {
	p, _ := newTestPlane(t)
	web, other := manyBackends(vip4, 4), manyBackends(vip6, 4)
	web.Tracking, other.Tracking = lb.TrackingFull, lb.TrackingFull
	update(t, p, web)
	update(t, p, other)
	want := map[netip.AddrPort]lb.BackendID{}
	for i := range 300 {
		client := netip.AddrPortFrom(client4.Addr(), uint16(1000+i))
		want[client], _ = chosen(t, p, web.VIP, client, web.Backends)
	}
	for i := range 20 {
		chosen(t, p, other.VIP, netip.AddrPortFrom(client6.Addr(), uint16(1000+i)), other.Backends)
	}

	got := flows(t, p, dataplane.FlowQuery{VIP: web.VIP, Limit: 1000})
	if len(got.Flows) != 300 || got.Matching != 300 || got.Records != 320 || got.Capacity != testCapacity.Flows+testCapacity.Sessions {
		t.Fatalf("%d flows of %d, %d records, room for %d", len(got.Flows), got.Matching, got.Records, got.Capacity)
	}
	for i, f := range got.Flows {
		if f.VIP != web.VIP || f.Backend != want[f.Client] || f.Age < 0 || f.Age > time.Minute {
			t.Errorf("flow %+v, want backend %s", f, want[f.Client])
		}
		if i > 0 && f.Age < got.Flows[i-1].Age {
			t.Errorf("flow %d is %s old, the one before %s", i, f.Age, got.Flows[i-1].Age)
		}
		delete(want, f.Client)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
	if cut := flows(t, p, dataplane.FlowQuery{Limit: 7}); len(cut.Flows) != 7 || cut.Matching != 320 {
		t.Errorf("%d flows of %d, want 7 of 320", len(cut.Flows), cut.Matching)
	}
	for prefix, matching := range map[string]int{"192.0.2.0/24": 300, "2001:db8::/32": 20, "198.51.100.0/24": 0, "0.0.0.0/0": 300} {
		query := dataplane.FlowQuery{Client: netip.MustParsePrefix(prefix), Limit: 1}
		if got := flows(t, p, query); got.Matching != matching {
			t.Errorf("%s: %d flows, want %d", prefix, got.Matching, matching)
		}
	}

	remove(t, p, web.VIP)
	if got := flows(t, p, dataplane.FlowQuery{Limit: 1000}); got.Matching != 20 {
		t.Errorf("after the service left: %d flows, want those of the other one", got.Matching)
	}
}

// A flow whose backend can't be used any more has none.
func TestFlowOfLostBackend(t *testing.T) {
	p, hops := newTestPlane(t)
	svc := manyBackends(vip4, 2)
	svc.Tracking = lb.TrackingFull
	update(t, p, svc)
	id, _ := chosen(t, p, svc.VIP, client4, svc.Backends)
	hops.lost[id.Addr()] = true
	update(t, p, svc)
	got := flows(t, p, dataplane.FlowQuery{Limit: 1})
	if len(got.Flows) != 1 || got.Flows[0].Backend.IsValid() {
		t.Errorf("%+v, want a flow without a backend", got)
	}
}
