//go:build guest

// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

const guePort = 6080

// GUE ends at the kernel's fou module, which hands packets to the devices of IP
// in IP.
func TestGUEDevices(t *testing.T) {
	lab := bringUp(t,
		host(client, netlab.Client, 1, "10.0.2.2/24", "fd00:2::2/64"),
		host("lb1", netlab.Balancer, 2, "10.0.2.11/24", "fd00:2::11/64"),
		tunnelServer("server1", 3, "10.0.2.101/24", "fd00:2::101/64"),
	)
	useFallbackDevices(t, lab, "server1")
	listenFOU(t, lab, "server1")
	serve(t, lab, "server1", tunnelVIPs()...)
	addRoutes(t, lab, client, map[string]string{"10.1.1.0/24": "10.0.2.11", "fd00:10:1:1::/64": "fd00:2::11"})
	b := openBalancer(t, lab, "lb1")

	ends := map[lb.VIP]map[device]lb.BackendID{}
	probed := probes{b, "lb1", map[*lb.Service][]string{}}
	for i, c := range []struct{ backend, device string }{
		{"10.0.2.101", "tunl0"}, {"10.0.2.101", "sit0"}, {"fd00:2::101", "ip6tnl0"}, {"fd00:2::101", "ip6tnl0"},
	} {
		for protocol, port := range ports() {
			svc := service(lb.VIP{Address: tunnelVIPs()[i], Port: port, Protocol: protocol}, lb.GUE, c.backend)
			probed.hosts[svc] = []string{"server1"}
			ends[svc.VIP] = map[device]lb.BackendID{{"server1", c.device}: svc.Backends[0].ID()}
			t.Run(fmt.Sprintf("%s over %s", svc.VIP, c.backend), func(t *testing.T) {
				b.balance(t, svc)
				reach(t, lab, svc.VIP, "server1")
			})
		}
	}
	t.Run("every packet", func(t *testing.T) { checkDevices(t, lab, b, ends) })
	b.checkExits(t)
	t.Run("probes", func(t *testing.T) { probed.check(t, lab) })
}

// listenFOU is "ip fou add port 6080 gue", and the same with -6.
func listenFOU(t *testing.T, lab *netlab.Lab, host string) {
	t.Helper()
	within(t, lab, host, func() error {
		fou, err := netlink.GenlFamilyGet(netlink.FOU_GENL_NAME)
		if err != nil {
			return err
		}
		for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
			// netlink.FouAdd also names protocol 0, which newer kernels refuse.
			message := []byte{netlink.FOU_CMD_ADD, 1, 0, 0} // genlmsghdr of linux/genetlink.h
			for _, attribute := range []*nl.RtAttr{
				nl.NewRtAttr(netlink.FOU_ATTR_PORT, binary.BigEndian.AppendUint16(nil, guePort)),
				nl.NewRtAttr(netlink.FOU_ATTR_AF, []byte{family}),
				nl.NewRtAttr(netlink.FOU_ATTR_TYPE, []byte{netlink.FOU_ENCAP_GUE}),
			} {
				message = append(message, attribute.Serialize()...)
			}
			request := nl.NewNetlinkRequest(int(fou.ID), unix.NLM_F_ACK)
			request.AddRawData(message)
			if _, err := request.Execute(unix.NETLINK_GENERIC, 0); err != nil {
				return fmt.Errorf("fou of family %d: %w", family, err)
			}
		}
		return nil
	})
}

// segmentVNI is the identifier of the segments.
const segmentVNI = 0x123456

// Frames of VXLAN and Geneve segments end at the kernel's devices as they are
// made without options: over IPv6 those of VXLAN want a checksum.
func TestSegmentDevices(t *testing.T) {
	for forward, devices := range map[lb.Forward]func(family int) netlink.Link{
		lb.VXLAN: vxlanDevice, lb.Geneve: geneveDevice,
	} {
		t.Run(forward.String(), func(t *testing.T) { checkSegmentDevices(t, forward, devices) })
	}
}

func checkSegmentDevices(t *testing.T, forward lb.Forward, deviceOfFamily func(family int) netlink.Link) {
	lab := bringUp(t,
		host(client, netlab.Client, 1, "10.0.2.2/24", "fd00:2::2/64"),
		host("lb1", netlab.Balancer, 2, "10.0.2.11/24", "fd00:2::11/64"),
		tunnelServer("server1", 3, "10.0.2.101/24", "fd00:2::101/64"),
	)
	for family := range 2 {
		addSilentDevice(t, lab, "server1", deviceOfFamily(family))
	}
	serve(t, lab, "server1", tunnelVIPs()...)
	addRoutes(t, lab, client, map[string]string{"10.1.1.0/24": "10.0.2.11", "fd00:10:1:1::/64": "fd00:2::11"})
	b := openBalancer(t, lab, "lb1")
	ends := map[lb.VIP]map[device]lb.BackendID{}
	probed := probes{b, "lb1", map[*lb.Service][]string{}}
	for i, vip := range tunnelVIPs() {
		family := i / 2
		for protocol, port := range ports() {
			svc := service(lb.VIP{Address: vip, Port: port, Protocol: protocol}, forward, "192.168.0.9")
			backend := &svc.Backends[0]
			backend.TunnelEnd = netip.MustParseAddr([]string{"10.0.2.101", "fd00:2::101"}[family])
			backend.MAC, backend.Segment = mac(9), lb.Segment{Type: forward.Overlay(), ID: segmentVNI}
			probed.hosts[svc] = []string{"server1"}
			ends[svc.VIP] = map[device]lb.BackendID{{"server1", segmentDevice(family)}: backend.ID()}
			t.Run(fmt.Sprintf("%s to %s", svc.VIP, backend.TunnelEnd), func(t *testing.T) {
				b.balance(t, svc)
				reach(t, lab, svc.VIP, "server1")
			})
		}
	}
	t.Run("every packet", func(t *testing.T) { checkDevices(t, lab, b, ends) })
	b.checkExits(t)
	t.Run("probes", func(t *testing.T) { probed.check(t, lab) })
}

// addSilentDevice adds a device without a link-local address: a tunnel's device would send
// its announcements (RFC 4861, RFC 3810) to the balancer.
func addSilentDevice(t *testing.T, lab *netlab.Lab, host string, device netlink.Link) {
	t.Helper()
	const none = 1 // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
	within(t, lab, host, func() error {
		if err := netlink.LinkAdd(device); err != nil {
			return err
		}
		if err := netlink.LinkSetIP6AddrGenMode(device, none); err != nil {
			return err
		}
		return netlink.LinkSetUp(device)
	})
}

func segmentDevice(family int) string { return []string{"seg4", "seg6"}[family] }

func segmentAttrs(family int) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	address := mac(9)
	attrs.Name, attrs.HardwareAddr = segmentDevice(family), net.HardwareAddr(address[:])
	return attrs
}

func vxlanDevice(family int) netlink.Link {
	return &netlink.Vxlan{
		LinkAttrs: segmentAttrs(family), VxlanId: segmentVNI, Port: 4789,
		SrcAddr: net.ParseIP([]string{"10.0.2.101", "fd00:2::101"}[family]),
	}
}

// geneveDevice takes frames from its far end only, which is the balancer.
func geneveDevice(family int) netlink.Link {
	return &netlink.Geneve{
		LinkAttrs: segmentAttrs(family), ID: segmentVNI, Dport: 6081,
		Remote: net.ParseIP([]string{"10.0.2.11", "fd00:2::11"}[family]),
	}
}
