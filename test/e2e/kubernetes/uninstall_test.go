// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
)

// An uninstall under load leaves nothing behind: routes go at once, and not after the
// time for which a router keeps the routes of a restarting agent; then programs,
// tables, and saved state.
func testUninstall(t *testing.T, i *installation) {
	vips := i.vips(t, "web")
	i.awaitRoutes(t, vips, i.names()...)
	l := startLoad(t.Context(), i.Client, vips)
	defer l.stop()
	l.goOn(t)
	i.callHelm(t, "uninstall", "fairlead", "--wait", "--timeout", await.Patience.String())
	cluster.Await(t, "routes to go", func() error {
		for _, vip := range vips {
			nodes, err := i.nextHops(t.Context(), vip)
			if err == nil && len(nodes) > 0 {
				err = fmt.Errorf("those to %s lead to %v", vip, nodes)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, n := range i.Nodes() {
		cluster.Await(t, "nothing to be left on "+n.Name(), func() error { return remains(t, n) })
	}
	if left := i.Kubectl(t, "get", "addresspools,loadbalancergroups,bgppeers", "-o", "name"); left != "" {
		t.Errorf("left are %s", left)
	}
}

// remains is an error if there is anything left of an agent on a node but an empty lock and
// an empty folder.
func remains(t *testing.T, n *cluster.Node) error {
	const list = `ip -details link show | grep -w xdp
for device in $(ls /sys/class/net); do
  tc filter show dev "$device" ingress
  tc filter show dev "$device" egress
done | grep fairlead
ls -A /sys/fs/bpf/fairlead
find /run/fairlead -type f ! -name agent.sock.lock
true`
	if findAgent(t, n) != 0 {
		return errors.New("the agent runs")
	}
	left, err := n.Run(t.Context(), "sh", "-c", list)
	if err == nil && strings.TrimSpace(left) != "" {
		err = fmt.Errorf("left is %s", left)
	}
	return err
}
