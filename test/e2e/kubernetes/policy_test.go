// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
)

// NetworkPolicies that kube-router enforces by netfilter are bypassed by default,
// and hold with filterPods. This is IPv4; TestFilterPods of test/e2e/traffic has IPv6.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	i := install(t, cluster.Options{Nodes: 2, KubeProxy: "nftables", NetworkPolicies: true}, dsr)
	i.Apply(t, web)
	pods := i.deployed(t, "web")
	vips := i.vips(t, "web")[:1]
	i.awaitRoutes(t, vips, i.names()...)
	i.Apply(t, policy(""))
	i.awaitRefusals(t, pods)
	for _, vip := range vips {
		i.answered(t, vip, pods)
	}

	i.runHelm(t, "upgrade", "--wait", "--set", "agent.dataplane.filterPods=true")
	i.Kubectl(t, "--namespace", namespace, "rollout", "status", "daemonset/fairlead-agent", "--timeout="+await.Patience.String())
	i.refused(t, vips)
	i.Kubectl(t, "delete", "networkpolicy", "web")
	for _, vip := range vips {
		i.answered(t, vip, pods)
	}
	i.Apply(t, policy(fmt.Sprintf("from: [{ipBlock: {cidr: %s/32}}]", cluster.ClientAddresses()[0])))
	for _, vip := range vips {
		i.answered(t, vip, pods)
	}
	i.Apply(t, policy("from: [{ipBlock: {cidr: 192.0.2.0/24}}]"))
	i.refused(t, vips)
}

// policy isolates the pods of "web", but for a rule.
func policy(rule string) string {
	return fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
  ingress: [%s]
`, map[bool]string{true: "{" + rule + "}"}[rule != ""])
}

// awaitRefusals waits until no pod answers the client at the pod's own address.
func (i *installation) awaitRefusals(t *testing.T, pods map[string]string) {
	t.Helper()
	for name := range pods {
		address := netip.MustParseAddr(strings.TrimSpace(i.Kubectl(t, "get", "pod", name, "--output=jsonpath={.status.podIP}")))
		i.refused(t, []netip.Addr{address})
	}
}

// refused waits until the client gets no answer of an address, repeatedly.
func (i *installation) refused(t *testing.T, addresses []netip.Addr) {
	t.Helper()
	const times = 5
	for _, address := range addresses {
		row := 0
		cluster.Await(t, "no answers of "+address.String(), func() error {
			pod, err := fetch(t.Context(), i.Client, netip.AddrPortFrom(address, 80))
			if row++; err == nil {
				row = 0
				return fmt.Errorf("answered by %q", pod)
			}
			if row < times {
				return fmt.Errorf("refused %d times", row)
			}
			return nil
		})
	}
}
