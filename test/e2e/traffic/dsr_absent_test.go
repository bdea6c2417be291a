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
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// proxyRules are kube-proxy's rules for a Service of type LoadBalancer, with a pod of
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

	// The node's filter tracks connections: a request with the port of one that was lost
	// belongs to the entry of that one, which kube-proxy's rules no longer see.
	answers := l.tries(t, 60, 20000, time.Second)
	if lost(answers) == 0 || answers["pod2-1"]+answers["pod2-2"] > 0 {
		t.Errorf("without kube-proxy: %v", answers)
	}
	l.Run(t, h.Name, "nft", proxyRules)
	answers = l.tries(t, 60, 21000, await.Patience)
	if lost(answers) > 0 || answers["pod2-1"] == 0 {
		t.Errorf("with kube-proxy: %v", answers)
	}
}

// tries sends requests to the VIP, each from a port of its own beginning with that one, and
// counts the results: the names of the servers that answered within that time, and curl's
// errors of the other requests.
func (l *lab) tries(t *testing.T, requests, port int, wait time.Duration) map[string]int {
	t.Helper()
	answers := map[string]int{}
	for i := range requests {
		said := l.Run(t, "client", "sh", "-c", fmt.Sprintf("curl --silent --show-error --fail --local-port %d --max-time %.0f %s 2>&1 || true",
			port+i, wait.Seconds(), harness.Origin(harness.VIP4)))
		answers[strings.TrimSpace(said)]++
	}
	return answers
}

// lost counts the requests that curl reports as failed.
func lost(answers map[string]int) (n int) {
	for said, count := range answers {
		if strings.HasPrefix(said, "curl:") {
			n += count
		}
	}
	return n
}
