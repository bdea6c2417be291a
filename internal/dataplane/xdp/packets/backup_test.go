// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// Connections with backends that live stay there while backups come and go, and those with
// backups when another backend returns.
func TestBackups(t *testing.T) {
	s := &unstableService{t: t, p: quietPlane(t, "", program.FeatureL2DSR), Service: manyBackends(vip4, 6)}
	s.VIP, s.IdleTimeout, s.all = webVIP, 8*time.Hour, s.Backends
	s.Health = &lb.HealthCheck{Type: lb.HealthTCP, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}
	const primaries = 3
	for i := range s.all {
		s.all[i].Backup = i >= primaries
	}
	desired := store.New()
	configure := func(backends []lb.Backend) {
		t.Helper()
		svc := *s.Service
		svc.Backends = backends
		snapshot, err := desired.Set([]lb.Service{svc})
		must(t, err)
		update(t, s.p, snapshot.Services[0].Service)
	}
	judge := func(healthy bool, backends ...lb.Backend) {
		t.Helper()
		var verdicts []health.Verdict
		for _, b := range backends {
			verdicts = append(verdicts, health.Verdict{VIP: s.VIP, Backend: b.ID(), State: health.State{
				Checked: true, Known: true, Healthy: healthy, Silent: !healthy, Share: lb.WholeShare,
			}})
		}
		update(t, s.p, desired.ApplyVerdicts(verdicts).Services[0].Service)
	}
	isOf := func(id lb.BackendID, backends []lb.Backend) bool {
		return slices.ContainsFunc(backends, func(b lb.Backend) bool { return b.ID() == id })
	}
	next := 0
	begin := func(among []lb.Backend) map[netip.AddrPort]lb.BackendID {
		t.Helper()
		homes := map[netip.AddrPort]lb.BackendID{}
		for range 200 {
			client := clientNumber(next)
			next++
			homes[client] = s.at(client, tcpSYN, clientNext-1)
			if s.at(client, tcpACK, clientNext); !isOf(homes[client], among) {
				t.Fatalf("%s is at %s, want one of %v", client, homes[client], among)
			}
		}
		return homes
	}

	configure(s.all[:primaries+1])
	homes := begin(s.all[:primaries])
	for _, backends := range [][]lb.Backend{s.all, s.all[:primaries], s.all[:primaries+1], s.all} {
		configure(backends)
		s.wantHomes(homes, "with other backups")
	}
	judge(false, s.all[0])
	for client, home := range homes {
		if home == s.all[0].ID() {
			delete(homes, client)
		}
	}
	s.wantHomes(homes, "without one")
	begin(s.all[1:primaries])
	judge(false, s.all[1:primaries]...)
	reserve := begin(s.all[primaries:])
	judge(true, s.all[1])
	s.wantHomes(reserve, "after the return of one")
	begin(s.all[1:2])
	configure(s.all[:primaries+1])
	for client, home := range reserve {
		if home != s.all[primaries].ID() {
			delete(reserve, client)
		}
	}
	s.wantHomes(reserve, "without the other backups")
}
