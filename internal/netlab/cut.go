// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
)

// Cut takes a host off its switch, as if the wire were out: the host's interface
// stays up and nothing arrives any more, in neither direction. The switch doesn't
// offer to others what is for the host: network cards would drop it, but a veth
// pair shows it to a balancer's program, which takes it for its own.
func (l *Lab) Cut(host string) error {
	return l.replug(host, func(h *netlink.Handle, port, bridge netlink.Link) error {
		return errors.Join(flood(h, bridge, false), h.LinkSetNoMaster(port))
	})
}

// Mend puts a host back on its switch.
func (l *Lab) Mend(host string) error {
	return l.replug(host, func(h *netlink.Handle, port, bridge netlink.Link) error {
		return errors.Join(h.LinkSetMaster(port, bridge), flood(h, bridge, true))
	})
}

// flood says whether a bridge sends frames for stations that it doesn't know to
// all.
func flood(h *netlink.Handle, bridge netlink.Link, on bool) error {
	links, err := h.LinkList()
	if err != nil {
		return err
	}
	for _, port := range links {
		if port.Attrs().MasterIndex != bridge.Attrs().Index {
			continue
		}
		if err := h.LinkSetFlood(port, on); err != nil {
			return fmt.Errorf("flooding: %w", err)
		}
	}
	return nil
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
