// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/test/cluster"
)

// The API server is away, and while it is, an agent is killed and comes back.
func testAPIAway(t *testing.T, i *installation) {
	n := i.Node(t, "n2")
	i.under(t, func(l *load) {
		i.Stop(t)
		for range 3 { // some seconds
			l.goOn(t)
		}
		before := i.agent(t, n)
		if _, err := n.Run(t.Context(), "kill", "-KILL", strconv.Itoa(before)); err != nil {
			t.Fatal(err)
		}
		cluster.Await(t, patience, "the next agent", func() error {
			if now, err := i.findAgent(t, n); err != nil || now == before {
				return fmt.Errorf("process %d, error %w", now, err)
			}
			return nil
		})
		l.goOn(t)
		i.Start(t)
		i.awaitRoutes(t, i.vips(t, "web"), i.names()...)
	}).unharmed(t)
}

// agent is the process of a node's agent, as the node counts.
func (i *installation) agent(t *testing.T, n *cluster.Node) int {
	t.Helper()
	pid, err := i.findAgent(t, n)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func (i *installation) findAgent(t *testing.T, n *cluster.Node) (int, error) {
	text, err := i.ask(t.Context(), n, "status", "-o", "json")
	if err != nil {
		return 0, err
	}
	var status struct{ PID int }
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return 0, err
	}
	return status.PID, nil
}

// A node loses its power, and later comes back. Connections to its pods are lost with
// them; those to others go on, unless the balancer that is gone had their state.
func testPowerCut(t *testing.T, i *installation) {
	const replicas = 6
	i.scale(t, replicas)
	n := i.Node(t, "n3")
	vips := i.vips(t, "web")
	left := slices.DeleteFunc(i.names(), func(name string) bool { return name == n.Name() })

	t.Log("power cut")
	gone := i.under(t, func(*load) {
		n.PowerCut(t)
		i.awaitRoutes(t, vips, left...)
		i.awaitNode(t, n, core.ConditionUnknown)
	}, n.Name())
	t.Log("power back")
	back := i.under(t, func(*load) {
		n.Boot(t)
		i.awaitRoutes(t, vips, i.names()...)
	})
	for _, d := range []damage{gone, back} {
		if i.forward.stateless() {
			d.unharmed(t)
		}
	}
}

// awaitNode waits until a node is known to be ready, or not.
func (i *installation) awaitNode(t *testing.T, n *cluster.Node, want core.ConditionStatus) {
	t.Helper()
	cluster.Await(t, patience, "node "+n.Name()+" to be ready: "+string(want), func() error {
		node, err := i.Clients().CoreV1().Nodes().Get(t.Context(), n.Name(), meta.GetOptions{})
		if err != nil {
			return err
		}
		at := slices.IndexFunc(node.Status.Conditions, func(c core.NodeCondition) bool { return c.Type == core.NodeReady })
		if at < 0 || node.Status.Conditions[at].Status != want {
			return fmt.Errorf("its conditions are %v", node.Status.Conditions)
		}
		return nil
	})
}
