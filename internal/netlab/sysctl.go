// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A router spreads flows by the five-tuple of their packets, and by nothing else.
// The policy 1 does so only where the kernel has no hash of the packet already:
// here it has that of the sender's socket, which other packets of the same flow
// don't have, such as a reset when the socket is gone.
const (
	multipathCustom    = "3"
	multipathFiveTuple = "55" // 0x37: both addresses, protocol, both ports
)

// tune sets a host's sysctls. It comes before any interface, since interfaces
// inherit what "default" says when they are made.
func (b *builder) tune(host *Host) error {
	settings := roleSysctls(host.Role)
	maps.Copy(settings, host.Sysctls)
	return b.namespace(host.Name).do(func() error {
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
			if err := os.WriteFile(path, []byte(settings[name]), 0o644); err != nil {
				return fmt.Errorf("sysctl %s: %w", name, err)
			}
		}
		return nil
	})
}

// roleSysctls returns what a host of that role needs.
func roleSysctls(role Role) map[string]string {
	settings := map[string]string{
		// Answers come from elsewhere than requests went to: no host may take
		// that for spoofing.
		"net.ipv4.conf.all.rp_filter":     "0",
		"net.ipv4.conf.default.rp_filter": "0",
		// IPv6 is there and addresses are usable at once, whatever the machine's
		// defaults are; nothing is learnt from router advertisements.
		"net.ipv6.conf.all.disable_ipv6":      "0",
		"net.ipv6.conf.default.disable_ipv6":  "0",
		"net.ipv6.conf.default.accept_dad":    "0",
		"net.ipv6.conf.default.dad_transmits": "0",
		"net.ipv6.conf.default.accept_ra":     "0",
	}
	switch role {
	case Router:
		maps.Copy(settings, map[string]string{
			"net.ipv4.ip_forward":                "1",
			"net.ipv6.conf.all.forwarding":       "1",
			"net.ipv4.fib_multipath_hash_policy": multipathCustom,
			"net.ipv6.fib_multipath_hash_policy": multipathCustom,
			"net.ipv4.fib_multipath_hash_fields": multipathFiveTuple,
			"net.ipv6.fib_multipath_hash_fields": multipathFiveTuple,
		})
	case Server:
		// Every server has the VIPs: none may answer ARP requests for them or
		// name them in its own. IPv6 does not answer for another interface.
		maps.Copy(settings, map[string]string{
			"net.ipv4.conf.all.arp_ignore":   "1",
			"net.ipv4.conf.all.arp_announce": "2",
		})
	case Client, Switch, Balancer, Reflector:
	}
	return settings
}
