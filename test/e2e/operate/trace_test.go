// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// "fairlead trace" predicts the packets of live connections, before and after a
// change of backends, and "fairlead flows" lists the affected connections.
func TestTrace(t *testing.T) {
	t.Parallel()
	topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: lb.L2DSR, Balancers: 1, Servers: 4})
	if err != nil {
		t.Fatal(err)
	}
	l := bringUp(t, "trace", topology)
	for _, c := range l.OpenClients(t, 32) {
		said := l.trace(t, c, "syn,ack")
		if said.Ring == nil || said.Ring.Unstable || said.Flow.Tracked || said.Exit != "forward_l2dsr" || l.server(t, said) != c.Server {
			t.Fatalf("%s is served by %s; the trace says %+v, ring %+v", c.LocalAddr(), c.Server, said, said.Ring)
		}
	}
	t.Run("change", l.checkTraceOfChange)
}

// trace asks the balancer about a packet of the connection.
func (l *lab) trace(t *testing.T, c *harness.Client, flags string) observe.Trace {
	t.Helper()
	var traces []observe.Trace
	harness.Decode(t, harness.Show(t, "trace", "--socket", l.State().Host("lb1").Socket, "-o", "json",
		"--from", c.LocalAddr().String(), "--to", c.RemoteAddr().String(), "--flags", flags), &traces)
	if len(traces) != 1 || traces[0].Error != "" {
		t.Fatalf("traces %+v, want one", traces)
	}
	return traces[0]
}

// server is the name of the host that is a trace's backend.
func (l *lab) server(t *testing.T, said observe.Trace) string {
	t.Helper()
	for _, h := range l.Hosts(netlab.Server) {
		if said.Backend != nil && slices.Contains(h.Addresses, said.Backend.ID.Addr()) {
			return h.Name
		}
	}
	t.Fatalf("backend %+v: want a server", said.Backend)
	return ""
}

// One server is drained: its connections are traced to it still, first by the
// previous ring, then by their records, and new ones to another server.
func (l *lab) checkTraceOfChange(t *testing.T) {
	c := l.OpenClients(t, 1)[0]
	l.Configure(t, l.Changed(func(s *lb.Service) {
		for i := range s.Backends {
			if b := &s.Backends[i]; slices.Contains(l.State().Host(c.Server).Addresses, b.Address) {
				b.Weight = 0
			}
		}
	}))
	before := l.trace(t, c, "ack")
	if !before.Ring.Unstable || before.Flow.Hit || l.server(t, before) != c.Server {
		t.Errorf("before its next packet: %+v, ring %+v, flow %+v; it is served by %s", before, before.Ring, before.Flow, c.Server)
	}
	if err := c.Query(); err != nil {
		t.Fatal(err)
	}
	after := l.trace(t, c, "psh,ack")
	if !after.Flow.Hit || after.Flow.Recorded != before.Backend.ID || l.server(t, after) != c.Server {
		t.Errorf("after its next packet: %+v, ring %+v, flow %+v; it is served by %s", after, after.Ring, after.Flow, c.Server)
	}
	if opening := l.trace(t, c, "syn"); l.server(t, opening) == c.Server {
		t.Errorf("a new connection is traced to %s, which is drained", c.Server)
	}
	var flows observe.Flows
	harness.Decode(t, harness.Show(t, "flows", "--socket", l.State().Host("lb1").Socket, "-o", "json", "--service", "web"), &flows)
	client := netip.MustParseAddrPort(c.LocalAddr().String())
	if !slices.ContainsFunc(flows.Flows, func(f observe.Flow) bool {
		return f.Client == client && f.Backend == before.Backend.ID && f.Service == "web"
	}) {
		t.Errorf("%s isn't among the flows %+v", client, flows)
	}
}
