// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
)

// Cut takes a host off its switch, as if the wire were out: the host's interface
// stays up and nothing arrives any more, in neither direction.
func (l *Lab) Cut(host string) error {
	return l.replug(host, func(h *netlink.Handle, port, _ netlink.Link) error { return h.LinkSetNoMaster(port) })
}

// Mend puts a host back on its switch.
func (l *Lab) Mend(host string) error {
	return l.replug(host, func(h *netlink.Handle, port, bridge netlink.Link) error { return h.LinkSetMaster(port, bridge) })
}

// replug changes the port of a switch that is named for the host.
func (l *Lab) replug(host string, change func(h *netlink.Handle, port, bridge netlink.Link) error) error {
	state := l.State()
	i := slices.IndexFunc(state.Hosts, func(h HostState) bool {
		return h.Role == Switch && slices.Contains(h.Interfaces, host)
	})
	if i < 0 {
		return fmt.Errorf("lab %s: host %s: is on no switch", state.Name, host)
	}
	err := l.Do(state.Hosts[i].Name, func() error {
		h, err := netlink.NewHandle()
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		defer h.Close()
		bridge, err := h.LinkByName(bridgeName)
		if err != nil {
			return err
		}
		port, err := h.LinkByName(host)
		if err != nil {
			return err
		}
		return change(h, port, bridge)
	})
	if err != nil {
		return fmt.Errorf("lab %s: port %s: %w", state.Name, host, err)
	}
	return nil
}
