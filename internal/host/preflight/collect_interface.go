// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"fairlead.io/fairlead/internal/host/rtnl"
)

func collectInterfaces(names []string) ([]Interface, error) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("ethtool: %w", err)
	}
	defer tool.Close()
	interfaces := make([]Interface, 0, len(names))
	for _, name := range names {
		i, err := collectInterface(tool, name)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
		interfaces = append(interfaces, i)
	}
	return interfaces, nil
}

func collectInterface(tool *ethtool.Ethtool, name string) (Interface, error) {
	i := Interface{Name: name}
	link, err := netlink.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return i, nil
	}
	if err != nil {
		return i, err
	}
	attrs := link.Attrs()
	i.Exists, i.Up, i.MTU = true, attrs.Flags&net.FlagUp != 0, attrs.MTU
	// Interfaces without a device behind them answer neither of the two.
	if driver, err := tool.DriverName(name); err == nil {
		i.Driver = driver
	}
	if features, err := tool.Features(name); err == nil {
		i.HidesVLAN = features["rx-vlan-hw-parse"]
	}
	i.ReversePath = max(reversePathOf("all"), reversePathOf(name))
	if i.XDPFeatures, err = xdpFeatures(attrs.Index); err != nil {
		return i, fmt.Errorf("xdp features: %w", err)
	}
	if i.Networks, err = Networks(link); err != nil {
		return i, err
	}
	if attrs.Xdp != nil && attrs.Xdp.Attached {
		i.Program = program(attrs.Xdp)
	}
	return i, nil
}

// Networks returns the networks of an interface's addresses.
func Networks(link netlink.Link) (networks []netip.Prefix, err error) {
	addresses, err := rtnl.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	for _, a := range addresses {
		if address, ok := netip.AddrFromSlice(a.IP); ok {
			bits, _ := a.Mask.Size()
			networks = append(networks, netip.PrefixFrom(address.Unmap(), bits).Masked())
		}
	}
	return networks, nil
}

// reversePathOf reads an interface's rp_filter; one that can't be read filters
// nothing.
func reversePathOf(name string) ReversePath {
	text, _ := os.ReadFile(filepath.Join("/proc/sys/net/ipv4/conf", name, "rp_filter"))
	value, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return ReversePath(value)
}

// program returns whose the attached program is: proc_pid_fdinfo(5) has its id
// for the processes that hold it, or a link of it, open. Processes that end
// meanwhile, or that may not be looked at, are left out.
func program(xdp *netlink.LinkXdp) *Program {
	p := &Program{ID: xdp.ProgId, Native: xdp.AttachMode != nl.XDP_ATTACHED_SKB}
	want := fmt.Sprintf("prog_id:\t%d\n", xdp.ProgId)
	// The pattern is sound, which is all that an error would be about.
	files, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), want) {
			continue
		}
		process := filepath.Dir(filepath.Dir(file))
		name, err := os.ReadFile(filepath.Join(process, "comm"))
		if err != nil {
			continue
		}
		holder := fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(name)), filepath.Base(process))
		if !slices.Contains(p.Holders, holder) {
			p.Holders = append(p.Holders, holder)
		}
		p.Own = p.Own || sameProgram(process)
	}
	return p
}

// sameProgram reports whether a process, by its folder in /proc, runs the
// executable that this one runs, or one of its name.
func sameProgram(process string) bool {
	own, errOwn := os.Readlink("/proc/self/exe")
	other, errOther := os.Readlink(filepath.Join(process, "exe"))
	return errOwn == nil && errOther == nil && filepath.Base(own) == filepath.Base(other)
}
