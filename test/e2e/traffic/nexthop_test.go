// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Balancers follow the kernel's neighbour entries of servers.
func TestNextHops(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "nexthop", harness.ECMP(t, lb.L2DSR))
	l.speedUpNeighbours(t)
	t.Run("announced", func(t *testing.T) { l.checkMoved(t, "1", "02:00:00:00:99:01") })
	t.Run("unplugged", l.checkUnplugged)
	t.Run("silent", func(t *testing.T) { l.checkMoved(t, "0", "02:00:00:00:99:02") })
}

// speedUpNeighbours makes the balancers' kernels notice within some seconds that a
// neighbour is gone, instead of within a minute. What remains is mostly the 5 s
// after which the kernel looks at its managed neighbours again, which is the
// whole machine's: interval_probe_time_ms of the tables, not of an interface.
func (l *lab) speedUpNeighbours(t *testing.T) {
	t.Helper()
	for _, h := range l.Hosts(netlab.Balancer) {
		for _, family := range []string{"ipv4", "ipv6"} {
			for name, value := range map[string]string{
				"base_reachable_time_ms": "500",
				"delay_first_probe_time": "1", // in seconds
				"retrans_time_ms":        "100",
			} {
				l.Sysctl(t, h.Name, family+"/neigh/eth0/"+name, value)
			}
		}
	}
}

// checkMoved gives the server another Ethernet address, which it announces or
// not. All balancers have to find it.
func (l *lab) checkMoved(t *testing.T, announce, mac string) {
	l.Sysctl(t, harness.Moved, "ipv4/conf/eth0/arp_notify", announce)
	l.Sysctl(t, harness.Moved, "ipv6/conf/eth0/ndisc_notify", announce)
	address, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	harness.Link(t, l.Lab, harness.Moved, "eth0", func(link netlink.Link) error { return netlink.LinkSetHardwareAddr(link, address) })
	started := time.Now()
	l.awaitBackend(t, "its next hop is "+mac, func(b observe.Backend) bool { return b.InUse && strings.Contains(b.NextHop, mac) })
	t.Logf("found after %s", time.Since(started).Round(time.Millisecond))
	l.checkAllServe(t)
}

// checkUnplugged takes the server's cable out and puts it in again.
func (l *lab) checkUnplugged(t *testing.T) {
	harness.Link(t, l.Lab, "switch", harness.Moved, netlink.LinkSetDown)
	started := time.Now()
	l.awaitBackend(t, "it is out of use", func(b observe.Backend) bool {
		return !b.InUse && b.RingEntries == 0 && strings.Contains(b.Reason, "unresolved")
	})
	t.Logf("out after %s", time.Since(started).Round(time.Millisecond))
	for _, h := range l.Hosts(netlab.Balancer) {
		if said := harness.Show(t, "backends", "web", "--socket", h.Socket); !strings.Contains(said, "out: neighbour "+harness.Moved4) {
			t.Errorf("%s: the table gives no reason:\n%s", h.Name, said)
		}
		if said := harness.Show(t, "services", "--socket", h.Socket); !strings.Contains(said, "degraded: 1 of 4 backends not in use") {
			t.Errorf("%s: the services' table hides it:\n%s", h.Name, said)
		}
	}
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		counts := harness.ByServer(l.Echo(t, "client", vip, harness.Ports(200)))
		if counts[""] > 0 || counts[harness.Moved] > 0 {
			t.Errorf("%s: without %s 200 ports are answered by %v", vip, harness.Moved, counts)
		}
	}

	harness.Link(t, l.Lab, "switch", harness.Moved, netlink.LinkSetUp)
	started = time.Now()
	l.awaitBackend(t, "it is in use again", func(b observe.Backend) bool { return b.InUse && b.Reason == "" })
	t.Logf("back after %s", time.Since(started).Round(time.Millisecond))
	l.checkAllServe(t)
}

// awaitBackend waits until all balancers see the moved server so, in both
// families.
func (l *lab) awaitBackend(t *testing.T, what string, as func(observe.Backend) bool) {
	t.Helper()
	for _, h := range l.Hosts(netlab.Balancer) {
		for service, address := range map[string]string{"web": harness.Moved4, "web6": harness.Moved6} {
			if !await.Holds(func() bool { return as(harness.Backends(t, &h, service)[address]) }) {
				t.Fatalf("%s: timeout for %s waiting until %s: %+v", h.Name, address, what, harness.Backends(t, &h, service)[address])
			}
		}
	}
}

// checkAllServe sends traffic of which no packet may be lost to all servers.
func (l *lab) checkAllServe(t *testing.T) {
	t.Helper()
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		l.CheckPackets(t, "forward_l2dsr", func() { l.checkEcho(t, "client", vip, "server") })
	}
}
