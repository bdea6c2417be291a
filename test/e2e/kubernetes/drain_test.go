// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairlead.io/fairlead/test/await"
)

// A node is drained while clients ask: its pods move, and a spare node takes its place in the group
// before it leaves the routes. Its report says when it gets no more packets. Uncordoned it is a spare.
func testDrain(t *testing.T, i *installation) {
	vips := i.vips(t, "web")
	i.resize(t, 2)
	defer func() {
		i.Kubectl(t, "uncordon", "n1")
		i.resize(t, 3)
		i.awaitRoutes(t, vips, i.names()...)
	}()
	i.awaitRoutes(t, vips, "n1", "n2")
	fewest := i.followRoutes(t, vips)
	i.under(t, func(*load) {
		i.Kubectl(t, "drain", "n1", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout="+await.Patience.String())
		i.Kubectl(t, "wait", "balancernode/n1", "--for=jsonpath={.status.routes.announced}=0", "--timeout="+await.Patience.String())
		i.awaitOutput(t, "the report of a drained node", "true, 0 routes, 0 packets", "get", "balancernode", "n1", "--output",
			"jsonpath={.status.draining}, {.status.routes.announced} routes, {.status.traffic.packetsPerSecond} packets")
		i.awaitGroup(t, "2 nodes of 2, 2 ready: n2 n3")
		i.awaitRoutes(t, vips, "n2", "n3")
	}).unharmed(t)
	if least := fewest(); least < 2 {
		t.Errorf("there were routes by way of %d nodes, want 2 at any time", least)
	}
	i.Kubectl(t, "uncordon", "n1")
	i.awaitOutput(t, "the report of an uncordoned node", "false", "get", "balancernode", "n1", "--output", "jsonpath={.status.draining}")
	i.awaitGroup(t, "2 nodes of 2, 2 ready: n2 n3")
}

// resize sets the size of the group.
func (i *installation) resize(t *testing.T, size int) {
	t.Helper()
	i.Kubectl(t, "patch", "loadbalancergroup", "default", "--type=merge", "--patch", fmt.Sprintf(`{"spec":{"size":%d}}`, size))
}

// awaitGroup waits until the group's condition Ready has a message, and its nodes are these.
func (i *installation) awaitGroup(t *testing.T, want string) {
	t.Helper()
	i.awaitOutput(t, "the group", want, "get", "loadbalancergroup", "default", "--output",
		`jsonpath={.status.conditions[?(@.type=="Ready")].message}: {.status.nodes[*].name}`)
}

// followRoutes returns a function that returns the smallest number of nodes by which there have
// been routes to one of the addresses since.
func (i *installation) followRoutes(t *testing.T, vips []netip.Addr) (fewest func() int) {
	ctx, end := context.WithCancel(t.Context())
	least := len(i.Nodes())
	var following sync.WaitGroup
	following.Go(func() {
		const pace = 20 * time.Millisecond
		for pause(ctx, pace) {
			for _, vip := range vips {
				nodes, err := i.nextHops(ctx, vip)
				switch {
				case ctx.Err() != nil:
				case err != nil:
					t.Error(err)
					return
				default:
					least = min(least, len(nodes))
				}
			}
		}
	})
	t.Cleanup(following.Wait)
	return func() int {
		end()
		following.Wait()
		return least
	}
}
