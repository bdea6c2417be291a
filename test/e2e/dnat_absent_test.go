// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// proxyRules is what kube-proxy does for a Service of type LoadBalancer, with a pod of
// the second node: whoever brings a packet for the VIP to the node gets it answered.
const proxyRules = `table ip proxy {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    ip daddr 10.1.1.1 tcp dport 80 dnat to 10.244.2.2:8080
  }
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ct original ip daddr 10.1.1.1 masquerade
  }
}
`

// A node with pods has no agent, and packets are relayed to it all the same: they are
// lost if it has nobody who takes them, and kube-proxy does (docs/kubernetes.md).
func TestDNATWithoutAnAgent(t *testing.T) {
	l := bringUp(t, "dnatabsent", withLines(workers(t, lb.DNAT, 3, false)))
	l.spread(t, "lb1", "lb3")
	h := l.hosts(netlab.Balancer)[1]
	args := l.process(t, h.Name, "agent").Args
	l.kill(t, &h, "agent")
	l.run(t, h.Name, append(slices.Clone(args), "--remove")...)

	answers := l.tries(t, 60, time.Second)
	if answers[""] == 0 || answers["pod2-1"]+answers["pod2-2"] > 0 {
		t.Errorf("without anybody: %v", answers)
	}
	l.run(t, h.Name, "nft", proxyRules)
	answers = l.tries(t, 60, patience)
	if answers[""] > 0 || answers["pod2-1"] == 0 {
		t.Errorf("with kube-proxy: %v", answers)
	}
}

// tries asks the VIP, and counts who answers within that time; "" is nobody.
func (l *lab) tries(t *testing.T, requests int, wait time.Duration) map[string]int {
	t.Helper()
	answers := map[string]int{}
	for range requests {
		said := l.run(t, "client", "sh", "-c", fmt.Sprintf("curl --silent --fail --max-time %.0f %s || true", wait.Seconds(), origin(vip4)))
		answers[strings.TrimSpace(said)]++
	}
	return answers
}
