// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// neighbourPatience is how long the balancers' kernels may take to notice that a
// server is gone and back elsewhere, see hurryNeighbours: two times 5 s, their
// probes, and what a busy machine adds.
const neighbourPatience = 30 * time.Second

// The server that the tests change, and its addresses.
const (
	moved  = "server1"
	moved4 = "10.0.2.101"
	moved6 = "fd00:2::101"
)

// Balancers follow where a server is reached, as the kernel's neighbours tell.
func TestNextHops(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "nexthop", ecmp(t, lb.L2DSR))
	l.hurryNeighbours(t)
	t.Run("announced", func(t *testing.T) { l.checkMoved(t, "1", "02:00:00:00:99:01") })
	t.Run("unplugged", l.checkUnplugged)
	t.Run("silent", func(t *testing.T) { l.checkMoved(t, "0", "02:00:00:00:99:02") })
}

// hurryNeighbours makes the balancers' kernels notice within some seconds that a
// neighbour is gone, instead of within a minute. What remains is mostly the 5 s
// after which the kernel looks at its managed neighbours again, which is the
// whole machine's: interval_probe_time_ms of the tables, not of an interface.
func (l *lab) hurryNeighbours(t *testing.T) {
	t.Helper()
	for _, h := range l.hosts(netlab.Balancer) {
		for _, family := range []string{"ipv4", "ipv6"} {
			for name, value := range map[string]string{
				"base_reachable_time_ms": "500",
				"delay_first_probe_time": "1", // in seconds
				"retrans_time_ms":        "100",
			} {
				l.sysctl(t, h.Name, family+"/neigh/eth0/"+name, value)
			}
		}
	}
}

// sysctl sets what is below /proc/sys/net in a host.
func (l *lab) sysctl(t *testing.T, host, name, value string) {
	t.Helper()
	err := l.Do(host, func() error { return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0o644) })
	if err != nil {
		t.Fatal(err)
	}
}

// checkMoved gives the server another Ethernet address, which it announces or
// not. All balancers have to find it.
func (l *lab) checkMoved(t *testing.T, announce, mac string) {
	l.sysctl(t, moved, "ipv4/conf/eth0/arp_notify", announce)
	l.sysctl(t, moved, "ipv6/conf/eth0/ndisc_notify", announce)
	address, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	l.link(t, moved, "eth0", func(link netlink.Link) error { return netlink.LinkSetHardwareAddr(link, address) })
	started := time.Now()
	l.awaitBackend(t, "its next hop is "+mac, func(b observe.Backend) bool { return b.InUse && strings.Contains(b.NextHop, mac) })
	t.Logf("found after %s", time.Since(started).Round(time.Millisecond))
	l.checkAllServe(t)
}

// checkUnplugged takes the server's cable out and puts it in again.
func (l *lab) checkUnplugged(t *testing.T) {
	l.link(t, "switch", moved, netlink.LinkSetDown)
	started := time.Now()
	l.awaitBackend(t, "it is out of use", func(b observe.Backend) bool {
		return !b.InUse && b.RingEntries == 0 && strings.Contains(b.Reason, "unresolved")
	})
	t.Logf("out after %s", time.Since(started).Round(time.Millisecond))
	for _, h := range l.hosts(netlab.Balancer) {
		if said := show(t, "backends", "web", "--socket", h.Socket); !strings.Contains(said, "out: neighbour "+moved4) {
			t.Errorf("%s: the table gives no reason:\n%s", h.Name, said)
		}
		if said := show(t, "services", "--socket", h.Socket); !strings.Contains(said, "degraded: 1 of 4 backends not in use") {
			t.Errorf("%s: the services' table hides it:\n%s", h.Name, said)
		}
	}
	for _, vip := range []string{vip4, vip6} {
		counts := byServer(l.echo(t, "client", vip, ports(200)))
		if counts[""] > 0 || counts[moved] > 0 {
			t.Errorf("%s: without %s 200 ports are answered by %v", vip, moved, counts)
		}
	}

	l.link(t, "switch", moved, netlink.LinkSetUp)
	started = time.Now()
	l.awaitBackend(t, "it is in use again", func(b observe.Backend) bool { return b.InUse && b.Reason == "" })
	t.Logf("back after %s", time.Since(started).Round(time.Millisecond))
	l.checkAllServe(t)
}

// link changes an interface of a host.
func (l *lab) link(t *testing.T, host, name string, change func(netlink.Link) error) {
	t.Helper()
	err := l.Do(host, func() error {
		link, err := netlink.LinkByName(name)
		return errors.Join(err, change(link))
	})
	if err != nil {
		t.Fatalf("%s: interface %s: %v", host, name, err)
	}
}

// awaitBackend waits until all balancers see the moved server so, in both
// families.
func (l *lab) awaitBackend(t *testing.T, what string, as func(observe.Backend) bool) {
	t.Helper()
	for _, h := range l.hosts(netlab.Balancer) {
		for service, address := range map[string]string{"web": moved4, "web6": moved6} {
			if !within(neighbourPatience, func() bool { return as(backends(t, &h, service)[address]) }) {
				t.Fatalf("%s waits in vain for %s until %s: %+v", h.Name, address, what, backends(t, &h, service)[address])
			}
		}
	}
}

// checkAllServe sends traffic of which no packet may be lost to all servers.
func (l *lab) checkAllServe(t *testing.T) {
	t.Helper()
	for _, vip := range []string{vip4, vip6} {
		l.account(t, "forward_l2dsr", func() { l.checkEcho(t, "client", vip, "server") })
	}
}
