// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
	"fairlead.io/fairlead/test/e2e/harness"
)

// damage is a toll by whose fault it was.
type damage struct {
	toll
	// WithPod are connections that broke with their pods, and Else those whose pod
	// continues.
	WithPod, Else []breakage
}

func (d damage) String() string {
	return fmt.Sprintf("%d requests answered (the slowest in %s), %d lost; %d connections: %d closed by their pods, %d broken with their pods, %d broken otherwise",
		d.Requests, d.Slowest.Round(time.Millisecond), len(d.Lost), d.Connections, d.Closed, len(d.WithPod), len(d.Else))
}

// under has clients ask before, during and after a change of the Service "web", and
// returns the damage. Pods that are on the nodes named, or not there in the end,
// are gone. A connection without an answer yet is not counted as a removed pod's,
// unless a node is removed.
func (i *installation) under(t *testing.T, change func(l *load), lost ...string) damage {
	t.Helper()
	l := startLoad(t.Context(), i.Client, i.vips(t, "web"))
	defer l.stop()
	l.goOn(t)
	change(l)
	l.goOn(t)
	d := damage{toll: l.stop()}
	there, err := i.pods(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range d.Broken {
		node, known := there[b.pod]
		unanswered := b.pod == "" && len(lost) == 0
		if unanswered || known && !slices.Contains(lost, node) {
			d.Else = append(d.Else, b)
		} else {
			d.WithPod = append(d.WithPod, b)
		}
	}
	t.Log(d)
	sample(t, "lost", d.Lost)
	sample(t, "broken with its pod", d.WithPod)
	sample(t, "broken", d.Else)
	return d
}

// sample logs the first of those that suffered.
func sample[T any](t *testing.T, what string, all []T) {
	t.Helper()
	const first = 5
	for _, one := range all[:min(first, len(all))] {
		t.Logf("%s: %v", what, one)
	}
}

// unharmed fails the test if anybody lost anything that a living pod could have
// given.
func (d damage) unharmed(t *testing.T) {
	t.Helper()
	if len(d.Lost)+len(d.Else) > 0 {
		t.Errorf("%d requests lost, and %d connections broken whose pods live", len(d.Lost), len(d.Else))
	}
}

// scale gives "web" so many pods, and returns when there are neither fewer nor more.
func (i *installation) scale(t *testing.T, replicas int) {
	t.Helper()
	i.Kubectl(t, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", replicas))
	i.settle(t, replicas)
}

// settle waits until "web" has its pods, and those that end are gone.
func (i *installation) settle(t *testing.T, replicas int) {
	t.Helper()
	i.deployed(t, "web")
	cluster.Await(t, "pods to be gone", func() error {
		list, err := i.Clients().CoreV1().Pods("default").List(t.Context(), meta.ListOptions{LabelSelector: "app=web"})
		if err == nil && len(list.Items) != replicas {
			err = fmt.Errorf("there are %d, want %d", len(list.Items), replicas)
		}
		return err
	})
}

// Pods come and go.
func testScale(t *testing.T, i *installation) {
	i.scale(t, 1)
	i.under(t, func(l *load) {
		i.scale(t, 10)
		l.goOn(t)
		i.scale(t, 2)
	}).unharmed(t)
}

// All pods are replaced by new ones, again and again until there were FAIRLEAD_CONNECTIONS
// connections.
func testRollout(t *testing.T, i *installation) {
	const replicas = 4
	i.scale(t, replicas)
	wanted, _ := strconv.Atoi(os.Getenv("FAIRLEAD_CONNECTIONS"))
	d := i.under(t, func(l *load) {
		l.reusePorts(i.vips(t, "web"))
		for more := true; more; more = l.connections() < wanted {
			i.Kubectl(t, "rollout", "restart", "deployment/web")
			i.settle(t, replicas)
		}
	})
	d.unharmed(t)
	for _, b := range d.WithPod {
		if errors.Is(b.err, os.ErrDeadlineExceeded) {
			t.Errorf("a removed pod's connection hangs: %v", b)
		}
	}
}

// Pods that are deleted at once have no connections any more: their clients know when they ask next, and
// get other pods from the same ports.
func testDeletedPods(t *testing.T, i *installation) {
	const replicas, clients = 3, 40
	i.scale(t, replicas)
	address := netip.AddrPortFrom(i.vips(t, "web")[0], 80).String()
	open := func(port int) (conn net.Conn, c *harness.Client) {
		err := i.Client.Do(func() (err error) {
			conn, err = dialFrom(t.Context(), port, address)
			return err
		})
		if err != nil {
			t.Fatalf("port %d: %v", port, err)
		}
		c = harness.NewClient(conn)
		if err := c.Query(); err != nil {
			t.Errorf("port %d: %v", port, err)
		}
		return conn, c
	}
	var conns [clients]net.Conn
	var asking [clients]*harness.Client
	for n := range clients {
		conns[n], asking[n] = open(firstPort + n)
		defer conns[n].Close()
	}
	i.Kubectl(t, "delete", "pod", "--force", "--grace-period=0", "--selector", "app=web")
	i.settle(t, replicas)
	for n, c := range asking {
		err := c.Query()
		for err == nil { // its container isn't stopped yet
			if err = idle(c, regularPace); err == nil {
				err = c.Query()
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("port %d: a deleted pod's connection: %v", firstPort+n, err)
		}
		_ = conns[n].Close()
	}
	for n := range clients {
		conn, _ := open(firstPort + n)
		_ = conn.Close()
	}
}

// With externalTrafficPolicy Local a node whose last pod ends leaves the routes, and passes on
// packets that still arrive.
func testRolloutLocal(t *testing.T, i *installation) {
	const replicas = 3
	i.scale(t, replicas)
	policy := func(policy string) {
		i.Kubectl(t, "patch", "service/web", "--patch", `{"spec":{"externalTrafficPolicy":"`+policy+`"}}`)
	}
	policy("Local")
	defer policy("Cluster")
	i.awaitRoutesOfPods(t)
	i.under(t, func(*load) {
		i.Kubectl(t, "rollout", "restart", "deployment/web")
		i.settle(t, replicas)
	}).unharmed(t)
	i.awaitRoutesOfPods(t)
}

// awaitRoutesOfPods waits until the nodes with pods of "web", and no others, announce it.
func (i *installation) awaitRoutesOfPods(t *testing.T) {
	t.Helper()
	pods, err := i.pods(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	i.awaitRoutes(t, i.vips(t, "web"), slices.Compact(slices.Sorted(maps.Values(pods)))...)
}

// Agents and controllers are replaced by new ones.
func testUpgrade(t *testing.T, i *installation) {
	i.under(t, func(*load) {
		i.runHelm(t, "upgrade", "--wait", "--set", "logFormat=json")
		i.Kubectl(t, "--namespace", namespace, "rollout", "status", "daemonset/fairlead-agent", "--timeout="+await.Patience.String())
	}).unharmed(t)
}

// The kubelets of all nodes are replaced, one after the other.
func testKubelet(t *testing.T, i *installation) {
	i.under(t, func(*load) {
		for _, n := range i.Nodes() {
			n.RestartKubelet(t)
		}
	}).unharmed(t)
}
