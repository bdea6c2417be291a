// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// The configuration file changes under load; agents notice by themselves. One service gets a
// server more and another weight: it is balanced so, and of the other services nothing changes.
func TestConfigurationChanges(t *testing.T) {
	l := bringUp(t, "reload", harness.ECMP(t, lb.L2DSR))
	const newcomer = "10.0.2.104"
	wanted := l.Topology.Services // changed in place: the agents run it from now on
	web := slices.IndexFunc(wanted, func(s lb.Service) bool { return s.Name == "web" })
	wanted[web].Backends[0].Weight = 3
	first := slices.Clone(wanted)
	first[web].Backends = slices.Clone(wanted[web].Backends[:3])
	first[web].Backends[0].Weight = 1
	l.Configure(t, first)
	before := l.untouched(t)

	l.CheckPackets(t, "forward_l2dsr", func() {
		w := l.Load(t, "client", harness.LoadLimit, "-H", "Connection: close", harness.Origin(harness.VIP4))
		l.Configure(t, wanted)
		for _, h := range l.Hosts(netlab.Balancer) {
			harness.Until(t, h.Name+" sends packets to "+newcomer, func() bool {
				return harness.Backends(t, &h, "web")[newcomer].Packets > 100
			})
		}
		w.End(t)
	})
	if diff := cmp.Diff(before, l.untouched(t), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("other services are not as they were:\n%s", diff)
	}
	for _, h := range l.Hosts(netlab.Balancer) {
		for address, b := range harness.Backends(t, &h, "web") {
			if want := float64(b.Weight) / 6; b.Share < want-0.02 || b.Share > want+0.02 {
				t.Errorf("%s: backend %s of weight %d of 6 has a share of %.3f", h.Name, address, b.Weight, b.Share)
			}
		}
	}
}

// untouched returns, by balancer, all services but "web", with revisions and
// counters.
func (l *lab) untouched(t *testing.T) map[string]map[string]observe.Service {
	t.Helper()
	all := map[string]map[string]observe.Service{}
	for _, h := range l.Hosts(netlab.Balancer) {
		all[h.Name] = harness.Services(t, &h)
		delete(all[h.Name], "web")
		for name, s := range all[h.Name] {
			s.Rate = observe.Rate{} // of the last second: no property of the service
			all[h.Name][name] = s
		}
	}
	return all
}
