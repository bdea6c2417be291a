// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// strays counts packets that came to a balancer's kernel and were for somebody else,
// by what became of them: forwarded, or refused. If servers' answers came by a
// balancer they would be such packets; those of BGP and BFD are not, nor are clients'
// requests, which the kernel doesn't see.
func (s stage) strays() (sum uint64, err error) {
	for _, h := range s.balancers() {
		err := s.lab.Do(h.Name, func() error {
			n, err := strays()
			sum += n
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	return sum, nil
}

// strays counts those of the thread's network namespace (RFC 4293's counters, as
// proc_pid_net(5) has them).
func strays() (uint64, error) {
	v4, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, fmt.Errorf("counters of IPv4: %w", err)
	}
	v6, err := os.ReadFile("/proc/thread-self/net/snmp6")
	if err != nil {
		return 0, fmt.Errorf("counters of IPv6: %w", err)
	}
	found := counters(v4)
	for line := range bytes.Lines(v6) {
		if f := bytes.Fields(line); len(f) == 2 {
			found[string(f[0])], _ = strconv.ParseUint(string(f[1]), 10, 64)
		}
	}
	sum := uint64(0)
	for _, name := range []string{"InAddrErrors", "ForwDatagrams", "Ip6InAddrErrors", "Ip6InNoRoutes", "Ip6OutForwDatagrams"} {
		n, there := found[name]
		if !there {
			return 0, fmt.Errorf("counter %s: the kernel has none", name)
		}
		sum += n
	}
	return sum, nil
}

// counters are those of the lines "Ip:", the names in the first one and the values in
// the second.
func counters(snmp []byte) map[string]uint64 {
	found, names := make(map[string]uint64), [][]byte(nil)
	for line := range bytes.Lines(snmp) {
		f := bytes.Fields(line)
		switch {
		case len(f) == 0 || string(f[0]) != "Ip:":
		case names == nil:
			names = f
		default:
			for i := 1; i < min(len(f), len(names)); i++ {
				found[string(names[i])], _ = strconv.ParseUint(string(f[i]), 10, 64)
			}
		}
	}
	return found
}
