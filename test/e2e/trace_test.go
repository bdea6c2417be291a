// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// What "fairlead trace" says of live connections comes true, before and after a
// change of backends, and "fairlead flows" lists those that the change concerns.
func TestTrace(t *testing.T) {
	t.Parallel()
	topology, err := netlab.ECMP(netlab.ECMPOptions{Fairlead: "fairlead", Forward: lb.L2DSR, Balancers: 1, Servers: 4})
	if err != nil {
		t.Fatal(err)
	}
	l := bringUp(t, "trace", topology)
	for _, vip := range []string{vip4, vip6} {
		for range 16 {
			c := l.connect(t, vip)
			said := l.trace(t, c, "syn,ack")
			if said.Ring == nil || said.Ring.Unstable || said.Flow.Tracked || said.Exit != "forward_l2dsr" || l.server(t, said) != c.server {
				t.Fatalf("%s is served by %s; the trace says %+v, ring %+v", c.LocalAddr(), c.server, said, said.Ring)
			}
		}
	}
	t.Run("change", l.checkTraceOfChange)
	t.Run("text", l.checkTraceText)
}

// connection is an open one of the client's.
type connection struct {
	net.Conn
	vip, server string
}

// connect opens a connection that stays open until the test ends.
func (l *lab) connect(t *testing.T, vip string) *connection {
	t.Helper()
	conn, err := l.Dial(t.Context(), "client", "tcp", net.JoinHostPort(vip, "80"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &connection{Conn: conn, vip: vip}
	c.server = c.ask(t)
	return c
}

// ask sends a request and returns the name of the server that answers.
func (c *connection) ask(t *testing.T) string {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, origin(c.vip), http.NoBody)
	if err == nil {
		err = request.Write(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	name, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(name))
}

// trace asks the balancer about a packet of the connection.
func (l *lab) trace(t *testing.T, c *connection, flags string) observe.Trace {
	t.Helper()
	var traces []observe.Trace
	decode(t, show(t, "trace", "--socket", l.State().Host("lb1").Socket, "-o", "json",
		"--from", c.LocalAddr().String(), "--to", c.RemoteAddr().String(), "--flags", flags), &traces)
	if len(traces) != 1 || traces[0].Error != "" {
		t.Fatalf("traces %+v, want one", traces)
	}
	return traces[0]
}

// server is the name of the host that is a trace's backend.
func (l *lab) server(t *testing.T, said observe.Trace) string {
	t.Helper()
	for _, h := range l.hosts(netlab.Server) {
		if said.Backend != nil && slices.Contains(h.Addresses, said.Backend.ID.Addr()) {
			return h.Name
		}
	}
	t.Fatalf("backend %+v is no server", said.Backend)
	return ""
}

// One server is drained: its connections are traced to it still, first by the
// previous ring, then by their records, and new ones to another server.
func (l *lab) checkTraceOfChange(t *testing.T) {
	c := l.connect(t, vip4)
	services := slices.Clone(l.topology.Services)
	for i := range services {
		services[i].Backends = slices.Clone(services[i].Backends)
		for j := range services[i].Backends {
			if b := &services[i].Backends[j]; slices.Contains(l.State().Host(c.server).Addresses, b.Address) {
				b.Weight = 0
			}
		}
	}
	l.configure(t, services)
	before := l.trace(t, c, "ack")
	if !before.Ring.Unstable || before.Flow.Hit || l.server(t, before) != c.server {
		t.Errorf("before its next packet: %+v, ring %+v, flow %+v; it is served by %s", before, before.Ring, before.Flow, c.server)
	}
	if name := c.ask(t); name != c.server {
		t.Fatalf("the connection moved from %s to %s", c.server, name)
	}
	after := l.trace(t, c, "psh,ack")
	if !after.Flow.Hit || after.Flow.Recorded != before.Backend.ID || l.server(t, after) != c.server {
		t.Errorf("after its next packet: %+v, ring %+v, flow %+v; it is served by %s", after, after.Ring, after.Flow, c.server)
	}
	if opening := l.trace(t, c, "syn"); l.server(t, opening) == c.server {
		t.Errorf("a new connection is traced to %s, which is drained", c.server)
	}
	var flows observe.Flows
	decode(t, show(t, "flows", "--socket", l.State().Host("lb1").Socket, "-o", "json", "--service", "web"), &flows)
	client := netip.MustParseAddrPort(c.LocalAddr().String())
	if !slices.ContainsFunc(flows.Flows, func(f observe.Flow) bool {
		return f.Client == client && f.Backend == before.Backend.ID && f.Service == "web"
	}) {
		t.Errorf("%s isn't among the flows %+v", client, flows)
	}
}

// People read of it in words.
func (l *lab) checkTraceText(t *testing.T) {
	socket := l.State().Host("lb1").Socket
	said := show(t, "trace", "--socket", socket, "--from", "192.0.2.7:41000", "--to", vip4+":81")
	if want := fmt.Sprintf("passed to the kernel: no service at %s tcp port 81", vip4); !strings.Contains(said, want) {
		t.Errorf("trace says\n%s, want %q", said, want)
	}
	said = show(t, "trace", "--socket", socket, "--from", "192.0.2.7:41000", "--to", vip4+":80", "--interface", "eth0")
	for _, want := range []string{"service        web (tcp 10.1.1.1:80)\n", "ring           entry ", "next hop       eth0 02:", "counter        forward_l2dsr\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("trace says\n%s, want %q", said, want)
		}
	}
	if top := show(t, "top", "--socket", socket, "--count", "1"); !strings.Contains(top, "web      tcp 10.1.1.1:80") {
		t.Errorf("top says\n%s", top)
	}
}
