// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// A change that needs more of the program than the one in use contains has it
// replaced under load, and so has one that needs less: on no balancer a packet
// goes without a program, and no connection notices.
func TestProgramIsReplacedUnderLoad(t *testing.T) {
	l := bringUp(t, "program", ecmp(t, lb.L2DSR))
	lean := l.programs(t)
	l.account(t, "forward_l2dsr", func() {
		kept := l.load(t, "client", loadLimit, origin(vip4))
		opened := l.load(t, "client", loadLimit, "-H", "Connection: close", origin(vip6))
		l.waitForLoad(t)

		l.configure(t, append(slices.Clone(l.topology.Services), l.demanding()))
		rich := l.programs(t)
		if n := replaced(lean, rich); n != len(rich) {
			t.Errorf("%d of %d balancers have another program: they were %v, are %v", n, len(rich), lean, rich)
		}
		l.waitForLoad(t)

		l.configure(t, l.topology.Services)
		until(t, "what nobody needs is gone from the programs", func() bool {
			return replaced(rich, l.programs(t)) == len(rich)
		})
		l.waitForLoad(t)
		kept.end(t)
		opened.end(t)
	})
}

// demanding is a service that needs what none of the lab's does: another mode,
// sources and limits.
func (l *lab) demanding() lb.Service {
	service := l.topology.Services[0]
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
	for _, h := range l.hosts(netlab.Balancer) {
		before := exitsOf(t, &h)["forward_l2dsr"]
		until(t, h.Name+" is under load", func() bool { return exitsOf(t, &h)["forward_l2dsr"] > before+200 })
	}
}

// programs returns the identifier of the XDP program on every balancer's
// interface.
func (l *lab) programs(t *testing.T) map[string]uint32 {
	t.Helper()
	ids := map[string]uint32{}
	for _, h := range l.hosts(netlab.Balancer) {
		err := l.Do(h.Name, func() error {
			link, err := netlink.LinkByName("eth0")
			if err == nil && link.Attrs().Xdp != nil {
				ids[h.Name] = link.Attrs().Xdp.ProgId
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if ids[h.Name] == 0 {
			t.Fatalf("%s: eth0 has no XDP program", h.Name)
		}
	}
	return ids
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
