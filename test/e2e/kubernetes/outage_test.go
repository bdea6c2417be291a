// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/test/cluster"
)

// away is for how long at least the API server is.
const away = 30 * time.Second

// The API server is away, and while it is, an agent is killed and comes back.
func testAPIAway(t *testing.T, i *installation) {
	n := i.Node(t, "n2")
	i.under(t, func(l *load) {
		i.Stop(t)
		stopped := time.Now()
		back := sync.OnceFunc(func() { i.Start(t) })
		defer back() // also for the tests after one that fails
		l.goOn(t)
		i.killAgent(t, n)
		for l.goOn(t); time.Since(stopped) < away; {
			l.goOn(t)
		}
		back()
		l.goOn(t)
		i.awaitRoutes(t, i.vips(t, "web"), i.names()...)
	}).unharmed(t)
}

// killAgent kills a node's agent, and waits until the next one runs.
func (i *installation) killAgent(t *testing.T, n *cluster.Node) {
	t.Helper()
	killed := findAgent(t, n)
	if _, err := n.Run(t.Context(), "kill", "-KILL", strconv.Itoa(killed)); err != nil {
		t.Fatal(err)
	}
	cluster.Await(t, "the next agent", func() error {
		if now := findAgent(t, n); now == 0 || now == killed {
			return fmt.Errorf("the agent is process %d", now)
		}
		_, err := i.ask(t.Context(), n, "status")
		return err
	})
}

// findAgent returns the process of a node's agent, as the node counts, and 0 if there
// is none.
func findAgent(t *testing.T, n *cluster.Node) (pid int) {
	t.Helper()
	err := n.Do(func() error {
		paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range paths {
			line, err := os.ReadFile(path)
			if err == nil && strings.HasPrefix(string(line), "/usr/bin/fairlead\x00agent\x00") {
				pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path)))
				return err
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// A node loses its power, and later comes back. Requests go on being answered but for
// those that it was just answering. Connections to its pods are lost with them. If its
// balancer kept nothing that others lack, all others go on, although the ring has
// changed not long ago and records of flows are in the memory of one node: a node that
// doesn't know a connection asks the others (docs/design/tracking.md).
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
	t.Log("power back, and pods before the agent")
	back := i.under(t, func(l *load) {
		i.excludeAgent(t, n.Name())
		n.Boot(t)
		cluster.Await(t, "node "+n.Name()+" to take pods", func() error {
			node, err := i.Clients().CoreV1().Nodes().Get(t.Context(), n.Name(), meta.GetOptions{})
			if err == nil && len(node.Spec.Taints) > 0 {
				err = fmt.Errorf("it has taints %v", node.Spec.Taints)
			}
			return err
		})
		i.Kubectl(t, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", replicas+3))
		cluster.Await(t, "a pod on "+n.Name(), func() error {
			pods, err := i.pods(t.Context(), "web")
			if err == nil && !slices.Contains(slices.Collect(maps.Values(pods)), n.Name()) {
				err = fmt.Errorf("the pods are on %v", pods)
			}
			return err
		})
		for range 3 { // connections that the node's kube-proxy took now would be reset later
			l.goOn(t)
		}
		i.excludeAgent(t, "")
		i.awaitRoutes(t, vips, i.names()...)
	})
	if !i.forward.stateless() {
		gone.checkReset(t)
		back.checkReset(t)
		return
	}
	// Each visitor may have been with a pod that is gone.
	if all := len(vips) * visitors; len(gone.Lost) > all {
		t.Errorf("%d requests lost, want at most %d", len(gone.Lost), all)
	}
	if len(gone.WithPod) == 0 {
		t.Error("no connection was with a pod of the node: its loss shows nothing")
	}
	if len(gone.Else) > 0 {
		t.Errorf("%d connections broken whose pods live: %v", len(gone.Else), gone.Else)
	}
	back.unharmed(t)
}

// excludeAgent keeps the agent from a node, or lets all nodes have one, and leaves those that run.
func (i *installation) excludeAgent(t *testing.T, node string) {
	t.Helper()
	const patch = `{"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}, "template": {"spec": {"affinity": {"nodeAffinity": {
		"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
			{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [%q]}]}]}}}}}}}`
	i.Kubectl(t, "--namespace", namespace, "patch", "daemonset/fairlead-agent", "--type=merge", "--patch", fmt.Sprintf(patch, node))
}

// checkReset fails the test if a connection to a living pod timed out: a balancer that doesn't
// know a connection has to reset it.
func (d damage) checkReset(t *testing.T) {
	t.Helper()
	for _, b := range d.Else {
		if !errors.Is(b.err, unix.ECONNRESET) && !errors.Is(b.err, unix.EPIPE) {
			t.Errorf("broken, and not reset: %v", b)
		}
	}
}

// awaitNode waits until a node is known to be ready, or not.
func (i *installation) awaitNode(t *testing.T, n *cluster.Node, want core.ConditionStatus) {
	t.Helper()
	cluster.Await(t, "node "+n.Name()+" to be ready: "+string(want), func() error {
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
