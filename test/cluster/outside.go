// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/lab/wire"
)

// controlAPINumber is the number of AddAPI's machine in the network of the API
// server.
const controlAPINumber = 2

// AddMachine makes a machine without interfaces that is not in the cluster, and ends with it.
func (c *Cluster) AddMachine(t testing.TB, name string) *Machine {
	t.Helper()
	m, err := boot(name, c.dir, unix.CLONE_NEWNET, waitForEnd)
	if err != nil {
		t.Fatal(err)
	}
	c.others = append(c.others, m)
	if err := m.tune(nil); err != nil {
		t.Fatal(err)
	}
	if err := m.up("lo"); err != nil {
		t.Fatal(err)
	}
	return m
}

// AddAccessPort connects a new interface of a machine with the nodes' network, as an access port of a
// VLAN (lab/wire), and returns its MAC address.
func (c *Cluster) AddAccessPort(t testing.TB, m *Machine, name string, vlan uint16, address netip.Prefix) net.HardwareAddr {
	t.Helper()
	if err := c.join(m, name, bridge, []netip.Prefix{address}); err != nil {
		t.Fatal(err)
	}
	var mac net.HardwareAddr
	err := m.attach(name, func(port *netlink.LinkAttrs) error {
		mac = port.HardwareAddr
		return wire.AttachVLAN(port.Index, vlan)
	})
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// AddAPI starts the API server of another cluster, which has no nodes, in the network of the
// cluster's own one, on a machine that has no other network. It ends with the cluster.
func (c *Cluster) AddAPI(t testing.TB, name string) (*API, *Machine) {
	t.Helper()
	m, at := c.AddMachine(t, name), c.apiNetwork()
	to := bridge
	if c.options.Management {
		to = managementBridge
	}
	if err := c.join(m, eth0, to, at.prefixes(controlAPINumber)); err != nil {
		t.Fatal(err)
	}
	endpoint, etcd := netip.AddrPortFrom(at.addresses(controlAPINumber)[0], httpsPort), netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), etcdPort)
	a := newAPI(m, c.binary, endpoint, etcd, "--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount")
	a.dial = m.Dial
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a, m
}
