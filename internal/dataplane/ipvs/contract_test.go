//go:build guest

// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/frame"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// Every mode passes the suite of all data planes.
func TestContract(t *testing.T) {
	for _, forward := range Limits().Forwards {
		t.Run(forward.String(), func(t *testing.T) {
			var n *node
			dataplanetest.RunContract(t, dataplanetest.Harness{
				New: func(t *testing.T) dataplane.DataPlane {
					n = newNode(t, forward)
					return n.plane
				},
				Limits:  Limits(),
				Forward: forward,
				Probe: func(t *testing.T, _ dataplane.DataPlane, vip lb.VIP, client netip.AddrPort, _ []lb.Backend) (lb.BackendID, bool) {
					return n.probe(t, vip, client)
				},
			})
		})
	}
}

// node is a network namespace with a data plane and one interface, whose other end is the
// test: it has the addresses and link-layer addresses of all other hosts.
type node struct {
	plane   *Plane
	tap     *os.File
	mac     net.HardwareAddr
	forward lb.Forward
	// hosts are backends by the last byte of their link-layer addresses.
	hosts map[byte]netip.Addr
}

// Addresses of the node, and of the router, from which clients' packets come.
var (
	node4, node6     = netip.MustParseAddr("10.0.2.11"), netip.MustParseAddr("fd00:2::11")
	router4, router6 = netip.MustParseAddr("10.0.2.1"), netip.MustParseAddr("fd00:2::1")
)

func newNode(t *testing.T, forward lb.Forward) *node {
	t.Helper()
	n := &node{forward: forward, hosts: map[byte]netip.Addr{}}
	for i := range byte(8) {
		n.hosts[0x40+i] = netip.AddrFrom4([4]byte{10, 0, 2, 21 + i})
		n.hosts[0x60+i] = netip.AddrFrom16([16]byte{0: 0xfd, 3: 2, 15: 0x21 + i})
	}
	n.hosts[1], n.hosts[2] = router4, router6
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		done <- n.setUp(t)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(n.plane.Close(), n.tap.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// setUp makes the namespace, which ends with the thread and the plane.
func (n *node) setUp(t *testing.T) error {
	if _, err := netns.New(); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if n.tap, err = openTap("tap0"); err != nil {
		return err
	}
	tap, err := netlink.LinkByName("tap0")
	if err != nil {
		return err
	}
	n.mac = tap.Attrs().HardwareAddr
	if err := errors.Join(netlink.LinkSetMTU(tap, 1600), netlink.LinkSetUp(lo), netlink.LinkSetUp(tap)); err != nil {
		return err
	}
	for _, a := range []netip.Prefix{netip.PrefixFrom(node4, 24), netip.PrefixFrom(node6, 64)} {
		address := &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
		if a.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(tap, address); err != nil {
			return err
		}
	}
	for last, a := range n.hosts {
		neighbour := &netlink.Neigh{LinkIndex: tap.Attrs().Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, last}}
		if err := netlink.NeighSet(neighbour); err != nil {
			return err
		}
	}
	unusable := &netlink.Route{Dst: netlink.NewIPNet(dataplanetest.Unusable.AsSlice()), Type: unix.RTN_UNREACHABLE}
	if err := errors.Join(routeTo("0.0.0.0/0", router4.String()), routeTo("::/0", router6.String()), netlink.RouteAdd(unusable)); err != nil {
		return err
	}
	n.plane, err = Open(Config{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Forwarding: true})
	return err
}

// openTap makes an Ethernet device whose frames are read and written through the file.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	return os.NewFile(uintptr(fd), name), err // the runtime can't wait for one without a device
}

// retransmissions and pause of NAT clients, whose first packet to a backend that
// has left only ends the old connection, in the kernel's next tick.
const (
	retransmissions = 5
	pause           = 5 * time.Millisecond
)

// probe sends a client's first packet and returns where it went.
func (n *node) probe(t *testing.T, vip lb.VIP, client netip.AddrPort) (lb.BackendID, bool) {
	t.Helper()
	id, forwarded := n.send(t, vip, client)
	for i := 0; !forwarded && n.forward == lb.NAT && i < retransmissions; i++ {
		time.Sleep(pause)
		id, forwarded = n.send(t, vip, client)
	}
	return id, forwarded
}

func (n *node) send(t *testing.T, vip lb.VIP, client netip.AddrPort) (to lb.BackendID, forwarded bool) {
	t.Helper()
	n.write(t, frame.Description{From: client, To: netip.AddrPortFrom(vip.Address, vip.Port), Protocol: frame.Protocol(vip.Protocol.String()), Flags: frame.SYN})
	// The answer to an echo request comes after all effects of the packet.
	n.write(t, frame.Description{From: netip.AddrPortFrom(router4, 0), To: netip.AddrPortFrom(node4, 0), Protocol: frame.ICMP})
	if err := n.tap.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 2048)
	for {
		size, err := n.tap.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		destination, protocol, port := parse(buffer[:size])
		switch {
		case destination == router4 && protocol == unix.IPPROTO_ICMP:
			return to, forwarded
		case n.forward == lb.L2DSR && destination == vip.Address:
			to, forwarded = netip.AddrPortFrom(n.hosts[buffer[5]], vip.Port), true
		case n.forward == lb.NAT && protocol == byte(vip.Protocol) && n.isBackend(destination):
			to, forwarded = netip.AddrPortFrom(destination, port), true
		case n.forward != lb.NAT && n.isBackend(destination):
			to, forwarded = netip.AddrPortFrom(destination, vip.Port), true
		}
	}
}

func (n *node) write(t *testing.T, d frame.Description) {
	t.Helper()
	b, err := d.Build()
	if err != nil {
		t.Fatal(err)
	}
	copy(b, n.mac)
	if _, err := n.tap.Write(b); err != nil {
		t.Fatal(err)
	}
}

func (n *node) isBackend(a netip.Addr) bool {
	for _, host := range n.hosts {
		if host == a {
			return a != router4 && a != router6
		}
	}
	return false
}

// parse returns the destination, protocol and destination port of a frame with an IP packet
// without options.
func parse(b []byte) (destination netip.Addr, protocol byte, port uint16) {
	const ethernet = 14
	switch binary.BigEndian.Uint16(b[12:]) {
	case unix.ETH_P_IP:
		destination, _ = netip.AddrFromSlice(b[ethernet+16 : ethernet+20])
		return destination, b[ethernet+9], binary.BigEndian.Uint16(b[ethernet+20+2:])
	case unix.ETH_P_IPV6:
		destination, _ = netip.AddrFromSlice(b[ethernet+24 : ethernet+40])
		return destination, b[ethernet+6], binary.BigEndian.Uint16(b[ethernet+40+2:])
	}
	return netip.Addr{}, 0, 0
}
