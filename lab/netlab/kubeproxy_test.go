// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// As with kube-proxy, a removed backend keeps its TCP connections and loses its UDP flows; one of
// weight 0 keeps both.
func TestKubeProxy(t *testing.T) {
	labs := newLabs(t)
	topology := drawn(t, ECMP, ECMPOptions{Forward: lb.NAT, Balancers: 1, Servers: 2, Router: FRR, EchoPorts: []uint16{echoPort}})
	topology.KubeProxy(topology.Services)
	lab := bringUp(t, labs, topology)
	sync := func(change func(backends []lb.Backend) []lb.Backend) {
		services := slices.Clone(topology.Services)
		for i := range services {
			services[i].Backends = change(slices.Clone(services[i].Backends))
		}
		if err := SyncKubeProxy(t.Context(), lab, "lb1", services); err != nil {
			t.Fatal(err)
		}
	}
	for _, vip := range vips() {
		sync(func(both []lb.Backend) []lb.Backend { return both })
		dial := func(network string) net.Conn {
			conn, err := lab.Dial(t.Context(), "client", network, netip.AddrPortFrom(vip, echoPort).String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		flow, connection := dial("udp"), dial("tcp")
		for answerOf(t, flow) != answerOf(t, connection) {
			connection = dial("tcp")
		}
		first := answerOf(t, flow)
		n := slices.Index(topology.Probes[0].Answers, first)
		sync(func(both []lb.Backend) []lb.Backend { return slices.Delete(both, n, n+1) })
		second := answerOf(t, flow)
		if stayed := answerOf(t, connection); stayed != first || second == first {
			t.Errorf("%s: without %s the connection is at %s, the flow at %s", vip, first, stayed, second)
		}
		sync(func(both []lb.Backend) []lb.Backend { both[1-n].Weight = 0; return both })
		if stayed, begun := answerOf(t, flow), answerOf(t, dial("udp")); stayed != second || begun != first {
			t.Errorf("%s: with weight 0 of %s its flow is at %s, a new one at %s", vip, second, stayed, begun)
		}
	}
	removeAll(t, labs, lab)
}

// answerOf returns the name of the echo server that answers.
func answerOf(t *testing.T, conn net.Conn) string {
	t.Helper()
	err := conn.SetDeadline(time.Now().Add(readyTimeout))
	if err == nil {
		_, err = conn.Write([]byte("line\n"))
	}
	buffer, n := make([]byte, 64), 0
	if err == nil {
		n, err = conn.Read(buffer)
	}
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(string(buffer[:n]), " ")
	return name
}
