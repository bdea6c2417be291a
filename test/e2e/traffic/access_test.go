// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Who may use a service, and how much: a client with several addresses, three
// balancers, and lists that change while they run.
func TestAccess(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "access", harness.ECMP(t, lb.L2DSR))
	for _, address := range []string{"10.0.1.201/24", "fd00:1::201/64"} {
		l.Run(t, "client", "ip", "address", "add", address, "dev", "eth0", "nodad")
	}
	t.Run("sources", l.checkSources)
	t.Run("limits", l.checkLimits)
}

func (l *lab) checkSources(t *testing.T) {
	for _, c := range []struct{ vip, denied, allowed string }{
		{harness.VIP4, "10.0.1.201", "10.0.1.2"},
		{harness.VIP6, "fd00:1::201", "fd00:1::2"},
	} {
		denied := netip.MustParseAddr(c.denied)
		everybody := netip.PrefixFrom(denied, 0).Masked()
		only := netip.PrefixFrom(denied, denied.BitLen())
		for _, list := range []lb.Sources{{Deny: []netip.Prefix{only}}, {Allow: []netip.Prefix{everybody}, Deny: []netip.Prefix{only}}} {
			l.Configure(t, l.Changed(func(s *lb.Service) {
				if s.Address == netip.MustParseAddr(c.vip) {
					s.Sources = list
				}
			}))
			before := l.dropped(t, "drop_source_denied")
			if said, err := l.curl(t, c.denied, c.vip); err == nil {
				t.Errorf("%+v: %s is denied and was answered %q", list, c.denied, said)
			}
			if l.dropped(t, "drop_source_denied") == before {
				t.Errorf("%+v: the packets of %s were not counted", list, c.denied)
			}
			l.wantAnswer(t, c.allowed, c.vip)
		}
		l.Configure(t, l.Topology.Services)
		l.wantAnswer(t, c.denied, c.vip)
	}
}

// curl asks the web service from one of the client's addresses.
func (l *lab) curl(t *testing.T, from, vip string) (string, error) {
	t.Helper()
	var said strings.Builder
	cmd := exec.CommandContext(t.Context(), "curl", "-sS", "--fail", "--max-time", "1", "--interface", from, harness.Origin(vip))
	cmd.Stdout = &said
	err := l.Do("client", cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	return said.String(), err
}

func (l *lab) wantAnswer(t *testing.T, from, vip string) {
	t.Helper()
	if said, err := l.curl(t, from, vip); err != nil || !strings.HasPrefix(said, "server") {
		t.Errorf("%s was answered %q by %s: %v", from, said, vip, err)
	}
}

// dropped is how many packets have left all balancers by an exit.
func (l *lab) dropped(t *testing.T, exit string) uint64 {
	t.Helper()
	sum := uint64(0)
	for _, h := range l.Hosts(netlab.Balancer) {
		sum += harness.ExitsOf(t, &h)[exit]
	}
	return sum
}

// checkLimits opens more flows at once than a client may: as many as are allowed
// get answers, from the others' packets the counters add up.
func (l *lab) checkLimits(t *testing.T) {
	const allowed, offered = 4, 64
	l.Configure(t, l.Changed(func(s *lb.Service) {
		if s.Protocol == lb.UDP {
			s.Limits = lb.FlowLimits{NewFlows: 1000, NewFlowsPerSource: allowed}
		}
	}))
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		before := l.dropped(t, "drop_source_limit")
		conns := l.Sockets(t, "client", vip, harness.Ports(offered))
		names, err := harness.Exchange(conns, harness.Payload(0))
		harness.CloseSockets(conns)
		if err != nil {
			t.Fatal(err)
		}
		silent := harness.ByServer(names)[""]
		// Every balancer counts for itself, and the limit refills while packets come.
		if answered := offered - silent; answered < allowed || answered > offered/2 {
			t.Errorf("%s: %d of %d flows were let in, want few more than %d on each balancer", vip, answered, offered, allowed)
		}
		if drops := l.dropped(t, "drop_source_limit") - before; drops != uint64(silent) {
			t.Errorf("%s: %d packets were dropped, %d were not answered", vip, drops, silent)
		}
	}
	l.Configure(t, l.Topology.Services)
}
