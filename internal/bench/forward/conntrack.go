// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The kernel's connection table belongs to the whole machine; its defaults
// would make iptables and nftables drop new flows after a second, or search
// long chains for them.
const (
	conntrackMax     = "/proc/sys/net/netfilter/nf_conntrack_max"
	conntrackBuckets = "/proc/sys/net/netfilter/nf_conntrack_buckets"

	wantedConnections = 2 * newFlows // of two devices
	wantedBuckets     = newFlows / 4
)

// widenConntrack makes the connection table large enough for new flows, if there
// is a device that uses it; restore gives it its former sizes back.
func (p *plan) widenConntrack() (restore func() error, err error) {
	var undo []func() error
	restore = func() error {
		var errs []error
		for _, f := range undo {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	usesTable := slices.ContainsFunc(p.devices, func(d device) bool { return d.remembers })
	sendsNew := slices.ContainsFunc(p.cases, func(c conditions) bool { return c.flows == newFlows })
	if !usesTable || !sendsNew {
		return restore, nil
	}
	for path, wanted := range map[string]int{conntrackMax: wantedConnections, conntrackBuckets: wantedBuckets} {
		old, err := raise(path, wanted)
		if err != nil {
			return nil, errors.Join(err, restore())
		}
		if old != "" {
			undo = append(undo, func() error { return os.WriteFile(path, []byte(old), 0o644) })
		}
	}
	return restore, nil
}

// raise sets a sysctl to at least the wanted value and returns what it was;
// empty if it is large enough.
func raise(path string, wanted int) (old string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("connection tracking: %w", err)
	}
	old = strings.TrimSpace(string(text))
	value, err := strconv.Atoi(old)
	if err != nil {
		return "", fmt.Errorf("sysctl %s: %w", path, err)
	}
	if value >= wanted {
		return "", nil
	}
	if err := os.WriteFile(path, strconv.AppendInt(nil, int64(wanted), 10), 0o644); err != nil {
		return "", fmt.Errorf("sysctl %s: %w", path, err)
	}
	return old, nil
}
