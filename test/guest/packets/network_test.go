//go:build guest

// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// port is the only interface of every host.
const port = "eth0"

// Packets of at most 1500 bytes come from clients; all others' links also carry
// the header of a tunnel.
const tunnelMTU = 1600

// host draws a host with one interface. The number makes its MAC address.
func host(name string, role netlab.Role, number byte, addresses ...string) netlab.Host {
	return netlab.Host{Name: name, Role: role, Interfaces: []netlab.Interface{{
		Name: port, MAC: mac(number), Addresses: prefixes(addresses...),
	}}}
}

func mac(number byte) lb.MAC { return lb.MAC{0x02, 0, 0, 0, 0, number} }

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

// bringUp joins the hosts by a switch.
func bringUp(t *testing.T, hosts ...netlab.Host) *netlab.Lab {
	t.Helper()
	topology := netlab.Topology{Name: "guest"}
	wiring := netlab.Host{Name: "switch", Role: netlab.Switch}
	for _, h := range hosts {
		wiring.Interfaces = append(wiring.Interfaces, netlab.Interface{Name: h.Name})
		link := netlab.Link{A: netlab.End{Host: h.Name, Interface: port}, B: netlab.End{Host: wiring.Name, Interface: h.Name}}
		if h.Role != netlab.Client {
			link.MTU = tunnelMTU
		}
		topology.Links = append(topology.Links, link)
	}
	topology.Hosts = slices.Concat(hosts, []netlab.Host{wiring})
	lab, err := netlab.Labs{Dir: t.TempDir()}.Up(t.Context(), "guest", topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, h := range hosts {
		if h.Role == netlab.Balancer {
			awaitNeighbours(t, lab, h.Name, hosts)
		}
	}
	return lab
}

// awaitNeighbours waits until a host has resolved all others on its link. The links of
// a new lab may not carry packets yet: the kernel then gives up after 3 s, and tries
// again 5 s later.
func awaitNeighbours(t *testing.T, lab *netlab.Lab, host string, others []netlab.Host) {
	t.Helper()
	const known = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE
	for _, other := range others {
		for _, address := range other.Interfaces[0].Addresses {
			if other.Name == host {
				continue
			}
			ip := net.IP(address.Addr().AsSlice())
			for resolved := false; !resolved; {
				within(t, lab, host, func() error {
					if err := t.Context().Err(); err != nil {
						return err
					}
					conn, err := net.Dial("udp", net.JoinHostPort(ip.String(), "9"))
					if err != nil {
						return err
					}
					_, _ = conn.Write(nil) // has the kernel resolve the neighbour
					_ = conn.Close()
					entries, err := netlink.NeighList(0, 0)
					resolved = slices.ContainsFunc(entries, func(n netlink.Neigh) bool { return n.IP.Equal(ip) && n.State&known != 0 })
					return err
				})
				time.Sleep(5 * time.Millisecond)
			}
		}
	}
}

// within fails the test if fn, which runs inside the host, does.
func within(t *testing.T, lab *netlab.Lab, host string, fn func() error) {
	t.Helper()
	if err := lab.Do(host, fn); err != nil {
		t.Fatalf("host %s: %v", host, err)
	}
}

// addDevice makes a device of the host and switches it on.
func addDevice(t *testing.T, lab *netlab.Lab, host string, device netlink.Link) {
	t.Helper()
	within(t, lab, host, func() error {
		if err := netlink.LinkAdd(device); err != nil {
			return err
		}
		return netlink.LinkSetUp(device)
	})
}

// addVLAN makes the VLAN device of an id, for example eth0.100.
func addVLAN(t *testing.T, lab *netlab.Lab, host string, id int, addresses ...string) {
	t.Helper()
	device := &netlink.Vlan{LinkAttrs: netlink.NewLinkAttrs(), VlanId: id}
	device.Name = vlanDevice(id)
	within(t, lab, host, func() error {
		parent, err := netlink.LinkByName(port)
		device.ParentIndex = parent.Attrs().Index
		return err
	})
	addDevice(t, lab, host, device)
	within(t, lab, host, func() error {
		for _, p := range prefixes(addresses...) {
			a := &netlink.Addr{IPNet: network(p)}
			if p.Addr().Is6() {
				a.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(device, a); err != nil {
				return err
			}
		}
		return nil
	})
}

// vlanDevice is the name that addVLAN gives.
func vlanDevice(id int) string { return fmt.Sprintf("%s.%d", port, id) }

// addRoutes leads the destinations to a gateway each.
func addRoutes(t *testing.T, lab *netlab.Lab, host string, gateways map[string]string) {
	t.Helper()
	within(t, lab, host, func() error {
		for destination, gateway := range gateways {
			route := &netlink.Route{Dst: network(netip.MustParsePrefix(destination)), Gw: net.ParseIP(gateway)}
			if err := netlink.RouteAdd(route); err != nil {
				return err
			}
		}
		return nil
	})
}

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// received counts the packets that a device of the host has received.
func received(t *testing.T, lab *netlab.Lab, host, device string) uint64 {
	t.Helper()
	var packets uint64
	within(t, lab, host, func() error {
		l, err := netlink.LinkByName(device)
		if err == nil {
			packets = l.Attrs().Statistics.RxPackets
		}
		return err
	})
	return packets
}
