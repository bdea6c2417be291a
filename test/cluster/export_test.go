// SPDX-License-Identifier: Apache-2.0

package cluster

import "github.com/vishvananda/netlink"

// Dir is where the cluster's files are, after which its control groups are named.
func (c *Cluster) Dir() string { return c.dir }

// Sweep removes files and cgroups of killed runs, as every new cluster does first.
func Sweep() error { return sweep() }

// Bridge returns the MAC addresses of the control plane's bridge and of its ports.
func (c *Cluster) Bridge() (own string, ports []string, err error) {
	err = c.API.machine.withNetwork(func(h *netlink.Handle) error {
		links, err := h.LinkList()
		for _, link := range links {
			switch a := link.Attrs(); {
			case a.Name == bridge:
				own = a.HardwareAddr.String()
			case a.MasterIndex != 0:
				ports = append(ports, a.HardwareAddr.String())
			}
		}
		return err
	})
	return own, ports, err
}
