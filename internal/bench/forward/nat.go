// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/switchport"
	"fairlead.io/fairlead/internal/netlab"
)

// The kernel's own ways of balancing by NAT, with one rule for a protocol, which
// is the best case for them: the more rules, the slower is a new flow.
// Established flows see no rule at all, only the connection table.

func startIptables(ctx context.Context, lab *netlab.Lab) (*xdp.Plane, error) {
	// The native one where both are installed; the other one translates to nftables.
	program := "iptables-legacy"
	if _, err := exec.LookPath(program); err != nil {
		program = "iptables"
	}
	var rules []string
	for _, protocol := range []string{"udp", "tcp"} {
		rules = append(rules, fmt.Sprintf("-t nat -A PREROUTING -d %s -p %s --dport 80 -j DNAT --to-destination %s-%s",
			vipAddress, protocol, firstBackend, lastBackend))
	}
	return nil, startNAT(lab, iptablesDevice, func() error {
		for _, rule := range rules {
			if err := command(ctx, "", program, append([]string{"-w"}, strings.Fields(rule)...)...); err != nil {
				return err
			}
		}
		return nil
	})
}

func startNftables(ctx context.Context, lab *netlab.Lab) (*xdp.Plane, error) {
	rules := fmt.Sprintf(`table ip bench {
	chain prerouting {
		type nat hook prerouting priority dstnat
		ip daddr %[1]s udp dport 80 dnat to %[2]s-%[3]s
		ip daddr %[1]s tcp dport 80 dnat to %[2]s-%[3]s
	}
}
`, vipAddress, firstBackend, lastBackend)
	return nil, startNAT(lab, nftablesDevice, func() error { return command(ctx, rules, "nft", "-f", "-") })
}

// startNAT makes a host forward and calls rules inside of it.
func startNAT(lab *netlab.Lab, name string, rules func() error) error {
	return onDevice(lab, name, func(ifindex int) error {
		// A program on the device's end makes it take frames from the sender; it is
		// cheaper than receive offload, which finds nothing to merge here.
		if err := switchport.Attach(ifindex); err != nil {
			return err
		}
		if err := rules(); err != nil {
			return err
		}
		// A network card has verified checksums already.
		return os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_checksum", []byte("0"), 0o644)
	})
}

// command runs a program in the namespace of the calling thread.
func command(ctx context.Context, input, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w %s", strings.Join(append([]string{name}, args...), " "), err, bytes.TrimSpace(out))
	}
	return nil
}
