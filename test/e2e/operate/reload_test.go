// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// The configuration file changes under load; agents notice by themselves.
func TestConfigurationChanges(t *testing.T) {
	l := bringUp(t, "reload", harness.ECMP(t, lb.L2DSR))
	t.Run("changed", l.checkChanged)
	t.Run("refused", l.checkRefused)
}

// One service gets a server more and another weight: it is balanced so, and of
// the other services nothing changes.
func (l *lab) checkChanged(t *testing.T) {
	const newcomer = "10.0.2.104"
	wanted := l.Topology.Services // changed in place: it is what runs from now on
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

// A file with a mistake is refused whole and by its place; what was loaded runs
// on, and the next good file is taken.
func (l *lab) checkRefused(t *testing.T) {
	h := l.State().Host("lb1")
	good := l.Config(h.Name, l.Topology.Services)
	bad := strings.Replace(good, "weight", "wieght", 1)
	before := revisions(harness.Services(t, h))

	l.Write(t, h, bad)
	harness.Until(t, "the mistake is seen", func() bool { return harness.Status(t, h).Config.Error != "" })
	where := fmt.Sprintf("%s:%s: ", netlab.AgentFile, place(bad, "wieght"))
	if refusal := harness.Status(t, h).Config.Error; !strings.Contains(refusal, where) || !strings.Contains(refusal, "wieght") {
		t.Errorf("refused with %q, want the unknown field at %s", refusal, where)
	}
	if said := harness.Show(t, "status", "--socket", h.Socket); !strings.Contains(said, "the loaded one stays in force") || !strings.Contains(said, where) {
		t.Errorf("the status hides the refusal:\n%s", said)
	}
	if code, _, said := harness.Fairlead(t, "reload", "--socket", h.Socket); code != 1 || !strings.Contains(said, where) {
		t.Errorf("reload of a bad file: status %d and %q, want 1 and the place", code, said)
	}
	l.Load(t, "client", time.Second, harness.Origin(harness.VIP6)).WaitFlawless(t)
	if s := harness.Status(t, h); s.Config.Digest != harness.Digest(good) {
		t.Error("the digest is not that of what runs")
	}
	if after := revisions(harness.Services(t, h)); !maps.Equal(before, after) {
		t.Errorf("a bad file changed services: revisions were %v, are %v", before, after)
	}

	l.Write(t, h, good+"# mended\n")
	harness.Until(t, "the mended file is in force", func() bool {
		s := harness.Status(t, h)
		return s.Config.Error == "" && s.Config.Digest == harness.Digest(good+"# mended\n")
	})
	if after := revisions(harness.Services(t, h)); !maps.Equal(before, after) {
		t.Errorf("a comment changed services: revisions were %v, are %v", before, after)
	}
}

// revisions returns what is programmed of each service.
func revisions(services map[string]observe.Service) map[string]uint64 {
	programmed := map[string]uint64{}
	for name, s := range services {
		programmed[name] = s.ProgrammedRevision
	}
	return programmed
}

// place returns line and column of a word in a text, both from 1.
func place(text, word string) string {
	before, _, _ := strings.Cut(text, word)
	return fmt.Sprintf("%d:%d", strings.Count(before, "\n")+1, len(before)-strings.LastIndex(before, "\n"))
}
