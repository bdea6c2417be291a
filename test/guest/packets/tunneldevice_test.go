//go:build guest

// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"
	"net"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/lab/netlab"
)

// useFallbackDevices switches on the devices that the modules make in every
// network namespace.
func useFallbackDevices(t *testing.T, lab *netlab.Lab, host string) {
	t.Helper()
	within(t, lab, host, func() error {
		for _, name := range []string{"tunl0", "sit0", "ip6tnl0"} {
			device, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(device); err != nil {
				return err
			}
		}
		return acceptAny("ip6tnl0")
	})
}

// addTunnelDevices makes devices that take packets for the given addresses from
// any sender.
func addTunnelDevices(t *testing.T, lab *netlab.Lab, host, local4, local6 string) {
	t.Helper()
	named := func(name string) netlink.LinkAttrs {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		return attrs
	}
	for _, device := range []netlink.Link{
		&netlink.Iptun{LinkAttrs: named("ipip1"), Local: net.ParseIP(local4)},
		&netlink.Sittun{LinkAttrs: named("sit1"), Local: net.ParseIP(local4)},
		&netlink.Ip6tnl{LinkAttrs: named("ip6tnl1"), Local: net.ParseIP(local6)},
	} {
		addDevice(t, lab, host, device)
	}
}

// acceptAny lets the fallback device of ip6_tunnel take IPv4 as well as IPv6
// out of IPv6: "ip -6 tunnel change ip6tnl0 mode any". Netlink can't change
// this device (seen in 6.1).
func acceptAny(name string) error {
	// struct ip6_tnl_parm and struct ifreq of linux/ip6_tunnel.h and linux/if.h.
	parameters := struct {
		name      [unix.IFNAMSIZ]byte
		link      int32
		proto     uint8 // 0 is any
		_         [3]byte
		_         [2]uint32
		near, far [16]byte
	}{}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&parameters)}
	copy(parameters.name[:], name)
	copy(request.name[:], name)
	const changeTunnel = 0x89f3 // SIOCCHGTUNNEL of linux/if_tunnel.h
	socket, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), changeTunnel, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("%s: mode any: %w", name, errno)
	}
	return nil
}
