// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
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
	if i.XDPFeatures, err = xdpFeatures(attrs.Index); err != nil {
		return i, fmt.Errorf("xdp features: %w", err)
	}
	if attrs.Xdp != nil && attrs.Xdp.Attached {
		i.Program = &Program{
			ID:      attrs.Xdp.ProgId,
			Native:  attrs.Xdp.AttachMode != nl.XDP_ATTACHED_SKB,
			Holders: programHolders(attrs.Xdp.ProgId),
		}
	}
	return i, nil
}

// programHolders returns the processes that hold a BPF program, or a link of
// it, open: proc_pid_fdinfo(5) has its id. Processes that end meanwhile, or
// that may not be looked at, are left out.
func programHolders(id uint32) []string {
	var holders []string
	files, err := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	if err != nil {
		return nil
	}
	want := fmt.Sprintf("prog_id:\t%d\n", id)
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
		if !slices.Contains(holders, holder) {
			holders = append(holders, holder)
		}
	}
	return holders
}
