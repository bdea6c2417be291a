// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
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
// on the new one, and then announces and forwards as before.
func TestInterfaceIsRecreated(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "recreated", harness.Routed(t, netlab.ECMPOptions{Router: netlab.FRR}))
	name := l.Topology.Host("lb1").Interfaces[0].Name
	l.Run(t, "lb1", "ip", "link", "delete", name)
	harness.Until(t, "lb1 announces nothing", func() bool {
		for _, r := range l.Routes(t, "lb1").Announcements {
			if r.Announced || !strings.Contains(r.Reason, "interface "+name) {
				return false
			}
		}
		return true
	})
	if attached := harness.Status(t, l.State().Host("lb1")).DataPlane.Attachments; len(attached) != 0 {
		t.Errorf("attachments without the interface: %v", attached)
	}
	l.awaitRouteOf(t, harness.VIP4, "lb2", "lb3")
	l.awaitRouteOf(t, harness.VIP6, "lb2", "lb3")
	begun := time.Now()
	l.recreate(t, "lb1")
	harness.Until(t, "lb1 has the program on the new interface", func() bool {
		return len(harness.Status(t, l.State().Host("lb1")).DataPlane.Attachments) == 1
	})
	t.Logf("program attached after %s", time.Since(begun))
	l.awaitRouteOf(t, harness.VIP4, "lb1", "lb2", "lb3")
	l.awaitRouteOf(t, harness.VIP6, "lb1", "lb2", "lb3")
	t.Logf("routes learned after %s", time.Since(begun))
	before := harness.ExitsOf(t, l.State().Host("lb1"))
	harness.Until(t, "lb1 forwards again", func() bool {
		l.Gets(t, "client", harness.Origin(harness.VIP4), 10)
		return harness.ExitsOf(t, l.State().Host("lb1")).Minus(before)["forward_l2dsr"] > 0
	})
	t.Logf("packets forwarded after %s", time.Since(begun))
}

// recreate creates the interface of a balancer that has been deleted, with all that the
// lab had there.
func (l *lab) recreate(t *testing.T, host string) {
	t.Helper()
	h := l.Topology.Host(host)
	eth, fabric := &h.Interfaces[0], l.switchOf(t, host)
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

// withoutOffload lets the kernel finish the checksums of what leaves by an interface.
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

// switchOf is the switch to which a host is connected.
func (l *lab) switchOf(t *testing.T, host string) string {
	t.Helper()
	for _, link := range l.Topology.Links {
		switch host {
		case link.A.Host:
			return link.B.Host
		case link.B.Host:
			return link.A.Host
		}
	}
	t.Fatalf("%s has no link", host)
	return ""
}
