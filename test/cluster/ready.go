// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/test/await"
)

// awaitNetworks waits until the node has networks for its pods, and configures containerd
// with them, as the agent of a network plugin would.
func (n *Node) awaitNetworks(ctx context.Context) error {
	var networks []string
	err := n.kubelet.poll(ctx, func(ctx context.Context) error {
		node, err := n.cluster.clients.CoreV1().Nodes().Get(ctx, n.name, meta.GetOptions{})
		if err == nil && len(node.Spec.PodCIDRs) < len(nodeNetwork) {
			err = errors.New("it has no networks for pods")
		}
		if err == nil {
			networks = node.Spec.PodCIDRs
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	for _, text := range networks {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.name, err)
		}
		n.pods = append(n.pods, p)
	}
	return n.write(filepath.Join(networkFolder, "10-pods.conflist"), podNetworkText(networks[0], networks[1]))
}

// awaitReady waits until the nodes are ready.
func (c *Cluster) awaitReady(ctx context.Context, nodes ...*Node) error {
	for _, n := range nodes {
		if err := c.awaitHeartbeat(ctx, n, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// awaitHeartbeat waits until the node's kubelet has reported since then that it is
// ready: the API server keeps a node's last status until its heartbeats are missed.
func (c *Cluster) awaitHeartbeat(ctx context.Context, n *Node, since time.Time) error {
	err := n.kubelet.poll(ctx, func(ctx context.Context) error {
		node, err := c.clients.CoreV1().Nodes().Get(ctx, n.name, meta.GetOptions{})
		if err != nil {
			return err
		}
		conditions := node.Status.Conditions
		i := slices.IndexFunc(conditions, func(c core.NodeCondition) bool { return c.Type == core.NodeReady })
		switch {
		case i < 0:
			return errors.New("no status yet")
		case conditions[i].Status != core.ConditionTrue:
			return fmt.Errorf("not ready: %s", conditions[i].Message)
		case conditions[i].LastHeartbeatTime.Time.Before(since):
			return errors.New("no heartbeat yet")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	return nil
}

// now is the time in whole seconds, as heartbeats have it.
func now() time.Time { return time.Now().Truncate(time.Second) }

// Await calls condition until it returns nil, and fails the test with the last
// error if that takes longer than await.Patience.
func Await(t testing.TB, what string, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := poll(ctx, condition); err != nil {
		t.Fatalf("timeout after %s waiting for %s: %v", await.Patience, what, err)
	}
}

// poll calls condition until it returns nil or ctx ends, and returns its last
// error.
func poll(ctx context.Context, condition func() error) error {
	const pause = 50 * time.Millisecond
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(err, cause) {
				err = fmt.Errorf("%w: %w", cause, err)
			}
			return err
		case <-ticker.C:
		}
	}
}
