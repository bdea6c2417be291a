// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/wire"
	"fairlead.io/fairlead/test/e2e/harness"
)

// An interface that is deleted and created again, as by a driver that is reset: the
// agent announces no route while the interface is without the program, puts the program
// on the new one, and then announces and forwards as before, within a second. On a busy
// machine one of the balancers has to be so fast: the next time at the same one is damped.
func TestInterfaceIsRecreated(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "recreated", harness.Routed(t, netlab.ECMPOptions{Router: netlab.FRR}))
	const limit = time.Second
	all := []string{"lb1", "lb2", "lb3"}
	for i, host := range all {
		took := l.lostAndBack(t, host, slices.Delete(slices.Clone(all), i, i+1))
		if took <= limit {
			return
		}
		harness.Retried(t, "%s forwards %s after its interface was back, want %s", host, took, limit)
	}
	t.Errorf("none of the balancers forwards within %s after its interface was back", limit)
}

// lostAndBack deletes the interface of a balancer and creates it again. It returns the time
// from then until the balancer forwards packets of clients, as others do.
func (l *lab) lostAndBack(t *testing.T, host string, others []string) time.Duration {
	t.Helper()
	h, name := l.State().Host(host), l.Topology.Host(host).Interfaces[0].Name
	logged := len(agentLog(t, h))
	l.Run(t, host, "ip", "link", "delete", name)
	harness.Until(t, host+" announces nothing", func() bool {
		for _, r := range l.Routes(t, host).Announcements {
			if r.Announced || !strings.Contains(r.Reason, "interface "+name) {
				return false
			}
		}
		return true
	})
	if attached := harness.Status(t, h).DataPlane.Attachments; len(attached) != 0 {
		t.Errorf("attachments without the interface: %v", attached)
	}
	l.awaitRouteOf(t, harness.VIP4, others...)
	l.awaitRouteOf(t, harness.VIP6, others...)
	before := harness.ExitsOf(t, h)
	l.recreate(t, host)
	back := time.Now()
	l.awaitRouteOf(t, harness.VIP4, "lb1", "lb2", "lb3")
	l.awaitRouteOf(t, harness.VIP6, "lb1", "lb2", "lb3")
	t.Logf("routes learned after %s", time.Since(back))
	harness.Until(t, host+" forwards again", func() bool {
		l.Gets(t, "client", harness.Origin(harness.VIP4), 10)
		return harness.ExitsOf(t, h).Minus(before)["forward_l2dsr"] > 0
	})
	took := time.Since(back)
	t.Logf("packets forwarded after %s", took)
	since := agentLog(t, h)[logged:]
	attached, announced := strings.Index(since, "program attached"), strings.Index(since, "route announced")
	if attached < 0 || announced < attached {
		t.Errorf("a route was announced without the program on the interface; the agent has logged\n%s", since)
	}
	return took
}

// agentLog returns the log of a balancer's agents.
func agentLog(t *testing.T, h *netlab.HostState) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.Directory, "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// recreate creates the interface of a balancer that has been deleted, with all that the
// lab had there.
func (l *lab) recreate(t *testing.T, host string) {
	t.Helper()
	h := l.Topology.Host(host)
	const fabric = "switch"
	eth := &h.Interfaces[0]
	l.Run(t, host, "ip", "link", "add", eth.Name, "address", eth.MAC.String(), "type", "veth",
		"peer", "name", host, "netns", l.State().Host(fabric).Namespace)
	harness.Link(t, l.Lab, fabric, host, func(port netlink.Link) error { return wire.AttachSwitch(port.Attrs().Index) })
	l.withoutOffload(t, fabric, host)
	l.Run(t, fabric, "ip", "link", "set", host, "master", "br0", "up")
	l.withoutOffload(t, host, eth.Name)
	l.Run(t, host, "ip", "link", "set", eth.Name, "up")
	for _, a := range eth.Addresses {
		args := []string{"ip", "address", "add", a.String(), "dev", eth.Name}
		if a.Addr().Is6() {
			args = append(args, "nodad")
		}
		l.Run(t, host, args...)
	}
	for _, r := range h.Routes {
		l.Run(t, host, "ip", "route", "add", r.Destination.String(), "via", r.Gateways[0].String())
	}
}

// withoutOffload makes the kernel complete the checksums of packets that leave by an
// interface.
func (l *lab) withoutOffload(t *testing.T, host, name string) {
	t.Helper()
	err := l.Do(host, func() error {
		tool, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer tool.Close()
		return tool.Change(name, map[string]bool{"tx-checksum-ip-generic": false})
	})
	if err != nil {
		t.Fatalf("%s: interface %s: %v", host, name, err)
	}
}
