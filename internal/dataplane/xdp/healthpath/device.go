// SPDX-License-Identifier: Apache-2.0

package healthpath

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The two ends: probes enter by the first and come out of the second.
const (
	deviceName = "fairlead-probe"
	peerName   = "fairlead-send"
)

// deviceMTU is the least that IPv6 allows (RFC 8200, section 5): probes fit on
// every path, also with a tunnel's headers.
const deviceMTU = 1280

// device is the veth pair, by the indexes of its ends.
type device struct {
	near, far int
	// families of packets that can enter.
	families []int
}

// makeDevice makes the pair. It resolves no neighbours, has no addresses, and
// leaves neither checksums nor segmentation to hardware that isn't there.
func makeDevice(h *netlink.Handle) (device, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = deviceName, deviceMTU
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = peerName, deviceMTU
	if err := h.LinkAdd(veth); err != nil {
		return device{}, fmt.Errorf("device %s: %w", deviceName, err)
	}
	var d device
	for name, index := range map[string]*int{deviceName: &d.near, peerName: &d.far} {
		link, err := h.LinkByName(name)
		if err == nil {
			*index = link.Attrs().Index
			err = quieten(h, link)
		}
		if err != nil {
			return device{}, fmt.Errorf("device %s: %w", name, err)
		}
	}
	d.families = []int{netlink.FAMILY_V4}
	if enableIPv6() {
		d.families = append(d.families, netlink.FAMILY_V6)
	}
	return d, withoutOffload()
}

// quieten keeps the kernel from sending anything by itself.
func quieten(h *netlink.Handle, link netlink.Link) error {
	if err := h.LinkSetARPOff(link); err != nil {
		return err
	}
	const none = 1 // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
	err := h.LinkSetIP6AddrGenMode(link, none)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil // this kernel speaks no IPv6
	}
	return err
}

// enableIPv6 reports whether IPv6 packets can enter the device. Some switch the
// family off for new devices.
func enableIPv6() bool {
	const path = "/proc/sys/net/ipv6/conf/" + deviceName + "/disable_ipv6"
	if err := os.WriteFile(path, []byte("0"), 0); err == nil {
		return true
	}
	disabled, err := os.ReadFile(path)
	return err == nil && strings.TrimSpace(string(disabled)) == "0"
}

// withoutOffload lets the kernel finish packets before the far end sees them:
// XDP forwards them as they are.
func withoutOffload() error {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("ethtool: %w", err)
	}
	defer tool.Close()
	err = tool.Change(deviceName, map[string]bool{
		"tx-checksum-ip-generic":  false,
		"tx-generic-segmentation": false,
	})
	if err != nil {
		return fmt.Errorf("device %s: features: %w", deviceName, err)
	}
	return nil
}

// up switches both ends on.
func (d device) up(h *netlink.Handle) error {
	for _, index := range []int{d.far, d.near} {
		if err := h.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}); err != nil {
			return fmt.Errorf("device %s: up: %w", deviceName, err)
		}
	}
	return nil
}

// clean removes the device, with its routes and programs, and the rules.
func clean(h *netlink.Handle) error {
	errs := []error{removeRules(h)}
	link, err := h.LinkByName(deviceName)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return errors.Join(errs...)
	}
	if err == nil {
		err = h.LinkDel(link)
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("device %s: %w", deviceName, err))
	}
	return errors.Join(errs...)
}
