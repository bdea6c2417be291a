//go:build guest

// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// NAT and DSR reach servers behind devices of the kernel to which XDP can't send,
// and which have no link layer: IP in IP, of either family.
func TestNATIntoTunnelDevices(t *testing.T) {
	lab := bringUp(t,
		host(client, netlab.Client, 1, "10.0.2.2/24", "fd00:2::2/64"),
		host("lb1", netlab.Balancer, 2, "10.0.2.11/24", "fd00:2::11/64"),
		host("server1", netlab.Client, 3, "10.0.2.101/24", "fd00:2::101/64"),
	)
	addPointToPoint(t, lab, "lb1", "10.0.2.11", "10.0.2.101", "10.9.0.1/24")
	addPointToPoint(t, lab, "server1", "10.0.2.101", "10.0.2.11", "10.9.0.2/24")
	addPointToPoint(t, lab, "lb1", "fd00:2::11", "fd00:2::101", "fd00:9::1/64")
	addPointToPoint(t, lab, "server1", "fd00:2::101", "fd00:2::11", "fd00:9::2/64")
	backends := map[string]string{"10.1.1.1": "10.9.0.2", "fd00:10:1:1::1": "fd00:9::2"}
	serve(t, lab, "server1", netip.MustParseAddr(backends["10.1.1.1"]), netip.MustParseAddr(backends["fd00:10:1:1::1"]))
	addRoutes(t, lab, client, map[string]string{"10.1.1.0/24": "10.0.2.11", "fd00:10:1:1::/64": "fd00:2::11"})
	addRoutes(t, lab, "server1", map[string]string{"10.0.2.2/32": "10.9.0.1", "fd00:2::2/128": "fd00:9::1"})
	b := openBalancer(t, lab, "lb1")
	for _, forward := range []lb.Forward{lb.NAT, lb.DSR} {
		for vip, backend := range backends {
			for protocol, port := range ports() {
				svc := service(lb.VIP{Address: netip.MustParseAddr(vip), Port: port, Protocol: protocol}, forward, backend)
				t.Run(forward.String()+" "+svc.VIP.String(), func(t *testing.T) {
					within(t, lab, "lb1", func() error {
						programmed, err := b.Update(t.Context(), svc)
						if err == nil && programmed.InUse() != 1 {
							err = fmt.Errorf("%+v", programmed.Backends)
						}
						return err
					})
					reach(t, lab, svc.VIP, "server1")
				})
			}
		}
	}
	stats, err := b.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Exits["forward_nat_handover"] == 0 || stats.Exits["forward_nat_reply"] == 0 {
		t.Errorf("packets left by %v", stats.Exits)
	}
}

// addPointToPoint makes a device with an address, for packets of that family to
// the other end.
func addPointToPoint(t *testing.T, lab *netlab.Lab, host, local, remote, address string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "point4"
	p := netip.MustParsePrefix(address)
	a := &netlink.Addr{IPNet: network(p)}
	var device netlink.Link = &netlink.Iptun{LinkAttrs: attrs, Local: net.ParseIP(local), Remote: net.ParseIP(remote)}
	if p.Addr().Is6() {
		attrs.Name = "point6"
		device = &netlink.Ip6tnl{LinkAttrs: attrs, Local: net.ParseIP(local), Remote: net.ParseIP(remote), Proto: unix.IPPROTO_IPV6}
		a.Flags = unix.IFA_F_NODAD
	}
	addDevice(t, lab, host, device)
	within(t, lab, host, func() error {
		if err := netlink.AddrAdd(device, a); err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
		return nil
	})
}
