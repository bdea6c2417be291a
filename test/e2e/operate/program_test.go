// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// A change that needs more of the program than the one in use contains has it
// replaced under load, and so has one that needs less: on no balancer a packet
// goes without a program, and no connection notices.
func TestProgramIsReplacedUnderLoad(t *testing.T) {
	l := bringUp(t, "program", harness.ECMP(t, lb.L2DSR))
	lean := l.programs(t)
	l.CheckPackets(t, "forward_l2dsr", func() {
		kept := l.Load(t, "client", harness.LoadLimit, harness.Origin(harness.VIP4))
		opened := l.Load(t, "client", harness.LoadLimit, "-H", "Connection: close", harness.Origin(harness.VIP6))
		l.waitForLoad(t)

		l.Configure(t, append(slices.Clone(l.Topology.Services), l.demanding()))
		rich := l.programs(t)
		if n := replaced(lean, rich); n != len(rich) {
			t.Errorf("%d of %d balancers have another program: they were %v, are %v", n, len(rich), lean, rich)
		}
		l.waitForLoad(t)

		l.Configure(t, l.Topology.Services)
		harness.Until(t, "the programs lack what is not needed", func() bool {
			return replaced(rich, l.programs(t)) == len(rich)
		})
		l.waitForLoad(t)
		kept.End(t)
		opened.End(t)
	})
}

// demanding is a service with features that none of the lab's uses: another mode,
// sources and limits.
func (l *lab) demanding() lb.Service {
	service := l.Topology.Services[0]
	service.Name, service.Port, service.Forward = "demanding", 8080, lb.IPIP
	service.Sources = lb.Sources{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24")}}
	service.Limits = lb.FlowLimits{NewFlows: 1000, NewFlowsPerSource: 100}
	service.Backends = slices.Clone(service.Backends)
	for i := range service.Backends {
		service.Backends[i].Port = service.Port
	}
	return service
}

// waitForLoad returns when every balancer has forwarded some more packets.
func (l *lab) waitForLoad(t *testing.T) {
	t.Helper()
	for _, h := range l.Hosts(netlab.Balancer) {
		before := harness.ExitsOf(t, &h)["forward_l2dsr"]
		harness.Until(t, h.Name+" is under load", func() bool { return harness.ExitsOf(t, &h)["forward_l2dsr"] > before+200 })
	}
}

// programs returns the identifier of the XDP program of every balancer.
func (l *lab) programs(t *testing.T) map[string]uint32 {
	t.Helper()
	ids := map[string]uint32{}
	for _, h := range l.Hosts(netlab.Balancer) {
		if ids[h.Name] = l.program(t, h.Name); ids[h.Name] == 0 {
			t.Fatalf("%s: eth0 has no XDP program", h.Name)
		}
	}
	return ids
}

// program returns the identifier of the XDP program on a host's eth0; 0 is none.
func (l *lab) program(t *testing.T, host string) (id uint32) {
	t.Helper()
	harness.Link(t, l.Lab, host, "eth0", func(link netlink.Link) error {
		if xdp := link.Attrs().Xdp; xdp != nil {
			id = xdp.ProgId
		}
		return nil
	})
	return id
}

// replaced counts the balancers that have another program than before.
func replaced(before, now map[string]uint32) int {
	n := 0
	for name, id := range now {
		if id != before[name] {
			n++
		}
	}
	return n
}
