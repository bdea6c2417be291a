// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// filteredModes are the modes in which packets for pods of the node can pass its netfilter, with
// the exits by which packets leave nodes.
func filteredModes() map[lb.Forward]string {
	return map[lb.Forward]string{
		lb.NAT: "forward_nat+forward_nat_handover",
		lb.DSR: dsrForwarded,
	}
}

// Rules in the nodes' forwarding path are bypassed by default, and hold once packets for pods of
// the node pass netfilter: a forbidden pod answers no more, and others do.
func TestFilterPods(t *testing.T) {
	for forward := range filteredModes() {
		t.Run(forward.String(), func(t *testing.T) {
			t.Parallel()
			l := bringUp(t, "filter"+forward.String(), workers(t, forward, 2, true))
			l.forbid(t)
			for _, vip := range []string{harness.VIP4, harness.VIP6} {
				if seen := l.Gets(t, "client", harness.Origin(vip), 60); seen["pod1-1"] == 0 || seen["pod2-1"] == 0 {
					t.Errorf("%s: answers of %v, want forbidden ones too: XDP bypasses netfilter", vip, seen)
				}
			}
			l.filterPods(t)
			harness.EachFamily(t, func(t *testing.T, vip string) { l.checkForbidden(t, vip) })
			before := l.forwarded(t)
			l.permit(t)
			l.checkAnswers(t)
			for name, packets := range l.forwarded(t) {
				if packets == before[name] {
					t.Errorf("%s: the kernel has forwarded no packet", name)
				}
			}
			t.Run("seen", l.checkClientsSeen)
		})
	}
}

// Modes that bypass netfilter work through it too, and outlive agents.
func TestFilteredPods(t *testing.T) {
	for forward, forwarded := range filteredModes() {
		t.Run(forward.String(), func(t *testing.T) {
			t.Parallel()
			topology, err := netlab.Nodes(netlab.NodesOptions{Forward: forward, Nodes: 2, FilterPods: true})
			if err != nil {
				t.Fatal(err)
			}
			l := bringUp(t, "filtered"+forward.String(), withLines(topology))
			harness.EachFamily(t, func(t *testing.T, vip string) {
				l.checkFamily(t, forwarded, vip)
				t.Run("bulk", func(t *testing.T) { l.checkBulk(t, vip) })
				t.Run("long datagrams", func(t *testing.T) { l.checkLongDatagrams(t, vip) })
			})
			t.Run("killed", func(t *testing.T) { l.checkAllKilled(t, forwarded) })
			t.Run("filtered", l.checkNothingInvalid)
		})
	}
}

// forbid has each node's netfilter reject packets forwarded to the node's first pod, as network
// plugins do with a pod that a policy isolates. Connections that exist are cut, too.
func (l *lab) forbid(t *testing.T) {
	t.Helper()
	for i, h := range l.Hosts(netlab.Balancer) {
		l.Run(t, h.Name, "nft", fmt.Sprintf(`table inet isolated {
			chain forward {
				type filter hook forward priority 10;
				ip daddr 10.244.%[1]d.2 meta l4proto tcp reject with tcp reset
				ip6 daddr fd00:244:%[1]d::2 meta l4proto tcp reject with tcp reset
				ip daddr 10.244.%[1]d.2 reject
				ip6 daddr fd00:244:%[1]d::2 reject
			}
		}`, i+1))
	}
}

// permit ends forbid.
func (l *lab) permit(t *testing.T) {
	t.Helper()
	for _, h := range l.Hosts(netlab.Balancer) {
		l.Run(t, h.Name, "nft", "delete table inet isolated")
	}
}

// filterPods restarts the agents with dataplane.filterPods.
func (l *lab) filterPods(t *testing.T) {
	t.Helper()
	for _, h := range l.Hosts(netlab.Balancer) {
		settings := l.Topology.Host(h.Name).Agent
		settings.FilterPods = true
		l.Write(t, &h, settings.YAML())
		<-l.SignalAgent(t, &h, unix.SIGTERM)
		l.StartAgent(t, &h)
		if status := harness.Status(t, &h); !status.DataPlane.FilterPods {
			t.Errorf("%s: status %+v", h.Name, status.DataPlane)
		}
		for address, b := range harness.Backends(t, &h, "web") {
			if b.NextHop != "this machine's network stack" {
				t.Errorf("%s: %s is reached by %q", h.Name, address, b.NextHop)
			}
		}
	}
}

// checkForbidden finds that the first pod of each node answers neither TCP nor UDP, and that the
// client is refused at once: errors of netfilter are translated.
func (l *lab) checkForbidden(t *testing.T, vip string) {
	t.Helper()
	answers := map[string]int{}
	for range 60 {
		said := l.Run(t, "client", "sh", "-c", "curl --silent --show-error --fail --max-time 10 "+harness.Origin(vip)+" 2>&1 || true")
		if strings.HasPrefix(said, "curl: (7)") { // refused
			said = "refused"
		}
		answers[strings.TrimSpace(said)]++
	}
	if len(answers) != 3 || answers["refused"] == 0 || answers["pod1-2"] == 0 || answers["pod2-2"] == 0 {
		t.Errorf("%s: %v, want refusals and answers of the permitted pods", vip, answers)
	}
	echoes := map[string]int{}
	for port := 32000; port < 32040; port++ {
		echoes[l.echoedBy(t, vip, port)]++
	}
	delete(echoes, "") // the kernel limits the rate of ICMP errors
	if len(echoes) != 3 || echoes["refused"] == 0 || echoes["pod1-2"] == 0 || echoes["pod2-2"] == 0 {
		t.Errorf("%s: datagrams: %v, want refusals and answers of the permitted pods", vip, echoes)
	}
}

// echoedBy is the name of the server that echoes a datagram, "refused" after an ICMP error, or
// empty.
func (l *lab) echoedBy(t *testing.T, vip string, port int) string {
	t.Helper()
	conn := l.Sockets(t, "client", vip, []int{port})[port]
	defer conn.Close()
	echo, err := exchangeOnce(conn, []byte("datagram"))
	if errors.Is(err, unix.ECONNREFUSED) {
		return "refused"
	}
	name, _, _ := strings.Cut(string(echo), " ")
	return name
}

// checkAnswers finds that all pods answer in both families.
func (l *lab) checkAnswers(t *testing.T) {
	t.Helper()
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		if seen := l.Gets(t, "client", harness.Origin(vip), 100); len(seen) != len(l.Hosts(netlab.Server)) {
			t.Errorf("%s: answers of %v, want all pods", vip, seen)
		}
	}
}
