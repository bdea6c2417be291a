// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// proxyRules is what kube-proxy does for a Service of type LoadBalancer, with a pod of
// the second node: a packet for the VIP that arrives at the node is answered.
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

// Packets are relayed to a node with pods that runs no agent: they are lost, unless
// kube-proxy handles them there (docs/guides/kubernetes.md).
func TestDSRWithoutAnAgent(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "dsrabsent", withLines(workers(t, lb.DSR, 3, false)))
	l.spread(t, "lb1", "lb3")
	h := l.Hosts(netlab.Balancer)[1]
	args := l.Process(t, h.Name, "agent").Args
	l.KillAgent(t, &h, "agent")
	l.Run(t, h.Name, append(slices.Clone(args), "--remove")...)

	answers := l.tries(t, 60, time.Second)
	if answers[""] == 0 || answers["pod2-1"]+answers["pod2-2"] > 0 {
		t.Errorf("without kube-proxy: %v", answers)
	}
	l.Run(t, h.Name, "nft", proxyRules)
	answers = l.tries(t, 60, harness.Timeout)
	if answers[""] > 0 || answers["pod2-1"] == 0 {
		t.Errorf("with kube-proxy: %v", answers)
	}
}

// tries sends requests to the VIP and counts the servers that answer within that time; ""
// is none.
func (l *lab) tries(t *testing.T, requests int, wait time.Duration) map[string]int {
	t.Helper()
	answers := map[string]int{}
	for range requests {
		said := l.Run(t, "client", "sh", "-c", fmt.Sprintf("curl --silent --fail --max-time %.0f %s || true", wait.Seconds(), harness.Origin(harness.VIP4)))
		answers[strings.TrimSpace(said)]++
	}
	return answers
}
