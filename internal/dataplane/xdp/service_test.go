// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// The rest of a service after a failed Delete is deleted by the next Delete, or
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
	must(t, err)
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
		err = p.tables.VIPs.Each(func(_ table.BalancerVipKey, n uint32) error {
			number = n
			return nil
		})
		if err != nil || number != p.services[svc.VIP].Number.Base {
			t.Errorf("after Update without %s: service %d, %v", name, number, err)
		}
		remove(t, p, svc.VIP)
		empty("Update without " + name)
	}
}

// In NAT mode nothing is needed but the backend's address.
func TestProbesOfNAT(t *testing.T) {
	svc := manyBackends(vip4, 2)
	svc.Forward = lb.NAT
	p := &Plane{config: Config{Log: slog.New(slog.DiscardHandler)}}
	way, release, err := p.Open(svc, svc.Backends[1], 8080)
	must(t, err)
	release()
	if want := (health.Path{Target: netip.MustParseAddrPort("10.0.2.2:8080")}); way != want {
		t.Errorf("path %+v, want %+v", way, want)
	}
}

// BenchmarkUpdate programs a service with all its backends, and then with one of them down. The
// time for each backend doesn't depend on their number.
func BenchmarkUpdate(b *testing.B) {
	for _, backends := range []int{1000, 4000, 16000} {
		b.Run(fmt.Sprintf("%d backends", backends), func(b *testing.B) {
			p, err := OpenUnattached(Config{Log: slog.New(slog.DiscardHandler), Synchronize: func() error { return nil }}, nil)
			must(b, err)
			defer p.Close()
			var first, change time.Duration
			for b.Loop() {
				svc := manyBackends(vip4, backends)
				begun := time.Now()
				_, err := p.Update(b.Context(), svc)
				must(b, err)
				programmed := time.Now()
				svc.Backends[0].Down = true
				_, err = p.Update(b.Context(), svc)
				must(b, err)
				first, change = first+programmed.Sub(begun), change+time.Since(programmed)
				must(b, p.Delete(b.Context(), svc.VIP))
			}
			each := float64(b.N * backends)
			b.ReportMetric(float64(first.Nanoseconds())/each, "ns/backend")
			b.ReportMetric(float64(change.Nanoseconds())/each, "ns/backend-changed")
			b.ReportMetric(0, "ns/op")
		})
	}
}
