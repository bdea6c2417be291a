// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// A packet to an announced address that no service takes crosses the router once, even if
// the balancers are routers, too, whose own routes lead back to it.
func TestUnserved(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "unserved", harness.Routed(t, netlab.ECMPOptions{Router: netlab.FRR, Networks: true}))
	aggregates := []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("fd00:10:1:1::/64")}
	for _, h := range l.Hosts(netlab.Balancer) {
		l.Sysctl(t, h.Name, "ipv4/conf/all/forwarding", "1")
		l.Sysctl(t, h.Name, "ipv6/conf/all/forwarding", "1")
		config := *l.Topology.Host(h.Name).Agent.BGP
		config.Policies = []bgp.Policy{{Prefixes: aggregates, Aggregate: true}}
		l.reconfigureBGP(t, &h, &config)
	}
	for _, prefix := range aggregates {
		if err := l.awaitRoute(t, prefix, []string{"lb1", "lb2", "lb3"}); err != nil {
			t.Fatal(err)
		}
	}
	const packets = 20
	for _, to := range []string{"10.1.1.1:81", "10.1.1.77:80", "[fd00:10:1:1::1]:81", "[fd00:10:1:1::77]:80"} {
		t.Run(to, func(t *testing.T) {
			dropped, forwarded := l.unserved(t), l.forwarded(t)
			for range packets {
				l.sendFar(t, to)
			}
			harness.Until(t, "all packets are dropped", func() bool { return l.unserved(t)-dropped >= packets })
			if n := l.forwarded(t) - forwarded; n > 2*packets {
				t.Errorf("the router forwarded %d packets, %d were sent", n, packets)
			}
		})
	}
}

// sendFar sends a datagram from the client with the largest hop limit, from a new port.
func (l *lab) sendFar(t *testing.T, to string) {
	t.Helper()
	conn, err := l.Dial(t.Context(), "client", "udp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if netip.MustParseAddrPort(to).Addr().Is4() {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, 255)
		} else {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 255)
		}
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

// unserved counts the packets that balancers dropped as no service took them.
func (l *lab) unserved(t *testing.T) (n uint64) {
	t.Helper()
	for _, h := range l.Hosts(netlab.Balancer) {
		n += harness.ExitsOf(t, &h)["drop_unserved"]
	}
	return n
}

// forwarded counts the packets that the router has routed.
func (l *lab) forwarded(t *testing.T) uint64 {
	t.Helper()
	counters := harness.Kernel(t, l.Lab, "router")
	return counters["IpForwDatagrams"] + counters["Ip6OutForwDatagrams"]
}
