// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/test/cluster"
)

// Direct server return among nodes that are balancers and servers at once: their
// kube-proxy takes packets that they balance to themselves, and packets from other
// nodes, and answers go from there to the client. Nodes filter by reverse path as
// strictly as they can.
func testDirectReturn(t *testing.T, i *installation) {
	i.filterReversePaths(t, "1")
	defer i.filterReversePaths(t, "0")
	i.scale(t, 3)
	for _, mode := range []string{"l2dsr", "ipip", "gue"} {
		t.Run(mode, func(t *testing.T) {
			i.testDirectCluster(t, mode)
			i.testDirectLocal(t, mode)
		})
	}
}

// filterReversePaths sets rp_filter of all nodes.
func (i *installation) filterReversePaths(t *testing.T, value string) {
	t.Helper()
	for _, n := range i.Nodes() {
		err := n.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte(value), 0o644) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// direct is a Service of nginx whose packets go to nodes, each mode's at addresses of its
// own: nodes that forwarded late packets of a Service that is gone track them for some
// time, and bypass kube-proxy when a client reuses its port.
func direct(mode string) string {
	last := map[string]string{"l2dsr": "65", "ipip": "66", "gue": "67"}[mode]
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata:
  name: direct
  annotations:
    fairlead.io/forward: %s
    fairlead.io/addresses: 203.0.113.%s, 2001:db8:113::%s
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{port: 80}]
`, mode, last, last)
}

// With externalTrafficPolicy: Cluster any node will do. Packets are balanced once. No
// request is lost while a node leaves the group, so that the other two balance for it,
// and comes back.
func (i *installation) testDirectCluster(t *testing.T, mode string) {
	pods := i.deployed(t, "web")
	i.Apply(t, direct(mode))
	defer i.Kubectl(t, "delete", "service", "direct")
	vips := i.vips(t, "direct")
	i.awaitProxies(t, vips, 80)
	i.awaitRoutes(t, vips, i.names()...)
	for _, vip := range vips {
		i.answered(t, vip, pods)
	}
	before := i.settledExits(t)
	i.underDirect(t, vips, func(*load) {})
	i.balancedOnce(t, "forward_"+mode, before)
	i.underDirect(t, vips, func(l *load) {
		i.resize(t, 2)
		i.awaitHops(t, vips, "2 nodes", func(nodes []string) bool { return len(nodes) == 2 })
		l.goOn(t)
		i.resize(t, 3)
		i.awaitRoutes(t, vips, i.names()...)
	})
}

// underDirect fails the test if a client loses anything before, during or after a
// change.
func (i *installation) underDirect(t *testing.T, vips []netip.Addr, change func(*load)) {
	t.Helper()
	l := startLoad(t.Context(), i.Client, vips)
	defer l.stop()
	l.goOn(t)
	change(l)
	l.goOn(t)
	d := damage{toll: l.stop()}
	d.Else = d.Broken
	t.Log(d)
	sample(t, "lost", d.Lost)
	sample(t, "broken", d.Else)
	d.unharmed(t)
}

// With Local only nodes that have pods get packets, from whichever balancer, and pods
// see the client's own address.
func (i *installation) testDirectLocal(t *testing.T, mode string) {
	pods := i.deployed(t, "whoami")
	i.Apply(t, exposed("direct-local", "externalTrafficPolicy: Local"))
	defer i.Kubectl(t, "delete", "service", "direct-local")
	i.Kubectl(t, "annotate", "service/direct-local", "fairlead.io/forward="+mode)
	vips := i.vips(t, "direct-local")
	i.awaitProxies(t, vips, 8080)
	i.awaitRoutes(t, vips, i.names()...)
	i.clientsKept(t, vips, pods)
}

// balancing are the exits of packets that are balanced in these modes.
var balancing = []string{"forward_local", "forward_l2dsr", "forward_ipip", "forward_gue", "pass_from_peer", "drop_loop"}

// exits are the packets that left all nodes' data planes, by how.
func (i *installation) exits(t *testing.T) map[string]uint64 {
	t.Helper()
	sum := map[string]uint64{}
	for _, n := range i.Nodes() {
		var status struct {
			Exits []struct {
				Name    string
				Packets uint64
			}
		}
		text, err := i.ask(t.Context(), n, "status", "--output", "json")
		if err == nil {
			err = json.Unmarshal([]byte(text), &status)
		}
		if err != nil {
			t.Fatalf("node %s: %v", n.Name(), err)
		}
		for _, e := range status.Exits {
			sum[e.Name] += e.Packets
		}
	}
	return sum
}

// quiet is for how long no packet was counted when none is on its way: agents count once
// a second.
const quiet = 3 * time.Second

// settledExits are the exits of packets that are balanced when none is on its way.
func (i *installation) settledExits(t *testing.T) (settled map[string]uint64) {
	t.Helper()
	var since time.Time
	cluster.Await(t, "packets to come to rest", func() error {
		now := i.exits(t)
		maps.DeleteFunc(now, func(name string, _ uint64) bool { return !slices.Contains(balancing, name) })
		if !maps.Equal(now, settled) {
			settled, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return fmt.Errorf("they were %v", now)
		}
		return nil
	})
	return settled
}

// balancedOnce waits until it is seen that packets were kept, and sent on, and that as
// many were taken as were sent: each by the node to which it was sent first.
func (i *installation) balancedOnce(t *testing.T, forward string, before map[string]uint64) {
	t.Helper()
	cluster.Await(t, "packets to be balanced once", func() error {
		now := i.exits(t)
		moved := func(name string) uint64 { return now[name] - before[name] }
		kept, sent, taken, back := moved("forward_local"), moved(forward), moved("pass_from_peer"), moved("drop_loop")
		text := fmt.Sprintf("%d packets kept, %d sent on, %d taken, %d would have gone back", kept, sent, taken, back)
		if kept == 0 || sent == 0 || taken != sent || back != 0 {
			return errors.New(text)
		}
		t.Log(text)
		return nil
	})
}
