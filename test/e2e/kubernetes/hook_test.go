// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
	"fairlead.io/fairlead/test/guide"
	"fairlead.io/fairlead/test/measured"
)

// One balancer without BGP in a Deployment, whose hook changes the router's table. Its node loses its power and comes
// back, and a second balancer is started and rolled back: the route leads to the balancer that runs.
func TestSingleBalancer(t *testing.T) {
	t.Parallel()
	i := &installation{Cluster: cluster.Start(t, cluster.Options{Nodes: 3})}
	i.diagnoseFailure(t)
	i.Load(t, cluster.NginxImage(t), hookImage(t))
	i.serveRoutes(t)
	vip := netip.MustParseAddr("10.1.1.1")
	i.Kubectl(t, "create", "namespace", namespace)
	i.Kubectl(t, "label", "nodes", "n1", "n2", "balancer=true")
	i.Apply(t, i.singleBalancer(t, vip, i.server(t, "n3")))

	first := i.awaitSingle(t, vip)
	i.awaitAnswer(t, vip)
	cut := time.Now()
	since := func() time.Duration { return time.Since(cut) }
	i.Node(t, first).PowerCut(t)
	i.awaitNode(t, i.Node(t, first), core.ConditionUnknown)
	noticed := since()
	second := i.awaitSingle(t, vip)
	routed := since()
	i.awaitAnswer(t, vip)
	answered := since()
	t.Logf("after a loss of power: noticed after %s, the route leads to the next balancer after %s, answers after %s", noticed, routed, answered)
	if second == first {
		t.Fatalf("the balancer is still on %s", first)
	}

	i.Node(t, first).Boot(t)
	i.awaitNode(t, i.Node(t, first), core.ConditionTrue)
	if on := i.awaitSingle(t, vip); on != second {
		t.Errorf("the node that came back has the balancer: %s", on)
	}
	i.awaitAnswer(t, vip)

	i.scaleBalancers(t, "web-balancer", 2)
	i.awaitRoutes(t, []netip.Addr{vip}, first)
	i.scaleBalancers(t, "web-balancer", 1)
	rolledBack := time.Now()
	i.awaitSingle(t, vip)
	restored := time.Since(rolledBack)
	i.awaitAnswer(t, vip)
	measured.Write(t, root, "cloud", func(r *bench.Report) {
		r.Add("noticed_ms", "ms", measured.Runs(noticed), nil)
		r.Add("routed_ms", "ms", measured.Runs(routed), nil)
		r.Add("answered_ms", "ms", measured.Runs(answered), nil)
		r.Add("restored_ms", "ms", measured.Runs(restored), nil)
		r.Judge("milliseconds from Kubernetes' notice of a node's loss of power to answers", bench.Documented, bench.AtMost(15_000),
			bench.Milliseconds(answered-noticed))
	})
}

// hookImage has the agent, and a shell with an HTTP client for its hook.
func hookImage(t *testing.T) string {
	t.Helper()
	return cluster.Image{
		Name: "localhost/fairlead-hook:0.1.0", Programs: []string{"/usr/bin/busybox"},
		Copies: map[string]string{"/usr/bin/fairlead": executable}, Entrypoint: []string{"/usr/bin/fairlead"},
	}.Build(t)
}

// routesAddress is where the router takes changes of its table, as a cloud does.
var routesAddress = netip.AddrPortFrom(cluster.RouterAddresses()[0], 8080)

// serveRoutes changes the router's table as hooks ask for it.
func (i *installation) serveRoutes(t *testing.T) {
	t.Helper()
	var listener net.Listener
	err := i.Router.Do(func() (err error) {
		listener, err = net.Listen("tcp", routesAddress.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{ReadHeaderTimeout: await.Patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := i.changeRoute(r.Context(), r.URL.Path, r.FormValue("prefix"), r.FormValue("via")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-ended); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// changeRoute replaces a route, or removes the one that leads there.
func (i *installation) changeRoute(ctx context.Context, call, prefix, via string) error {
	if call == "/add" {
		_, err := i.Router.Run(ctx, "ip", "route", "replace", prefix, "via", via)
		return err
	}
	own, err := i.Router.Run(ctx, "ip", "route", "show", "exact", prefix, "via", via)
	if err == nil && own != "" {
		_, err = i.Router.Run(ctx, "ip", "route", "delete", prefix, "via", via)
	}
	return err
}

// server starts nginx on a node, and returns the pod's address.
func (i *installation) server(t *testing.T, node string) (address string) {
	t.Helper()
	i.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: %s}
spec:
  nodeName: %s
  containers: [{name: nginx, image: %s, imagePullPolicy: Never}]
`, namespace, node, cluster.NginxName))
	cluster.Await(t, "an address of the server", func() error {
		if address = i.Kubectl(t, "--namespace", namespace, "get", "pod", "server", "--output", "jsonpath={.status.podIP}"); address == "" {
			return errors.New("it has none")
		}
		return nil
	})
	return address
}

// singleBalancer is the Deployment of docs/guides/clouds.md with its files.
func (i *installation) singleBalancer(t *testing.T, vip netip.Addr, server string) string {
	t.Helper()
	blocks := guide.Blocks(t, root+"/docs/guides/clouds.md")
	at := slices.IndexFunc(blocks, func(b guide.Block) bool { return b.Target == "Deployment" })
	if at < 0 {
		t.Fatal("the guide has no Deployment")
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: web-balancer, namespace: %s}
stringData:
  fairlead.yaml: |
    node: {interfaces: [eth0], drainTimeout: 1s}
    dataplane: {hashSeed: 4711}
    routes: {hook: /etc/fairlead/route-hook, interval: 2s}
    services:
    - {name: web, address: %s, port: 80, forward: nat, backends: [{address: "%s"}]}
  route-hook: |
    #!/usr/bin/busybox sh
    exec /usr/bin/busybox wget -q -O /dev/null "http://%s/$1?prefix=$2&via=$FAIRLEAD_ADDRESS"
---
`, namespace, vip, server, routesAddress) + strings.Replace(blocks[at].Text, "IfNotPresent", "Never", 1)
}

// awaitSingle waits until one balancer is ready and the route leads to its node, which it returns.
func (i *installation) awaitSingle(t *testing.T, vip netip.Addr) (node string) {
	t.Helper()
	cluster.Await(t, "one balancer and the route to it", func() error {
		ready, err := i.podsOf(t.Context(), namespace, "web-balancer")
		if err != nil {
			return err
		}
		nodes := slices.Collect(maps.Values(ready))
		if len(nodes) != 1 {
			return fmt.Errorf("ready balancers on %v", nodes)
		}
		node = nodes[0]
		via, err := i.nextHopsOf(t.Context(), netip.PrefixFrom(vip, vip.BitLen()))
		if err == nil && !slices.Equal(via, nodes) {
			err = fmt.Errorf("the balancer is on %v, the route leads to %v", nodes, via)
		}
		return err
	})
	return node
}

func (i *installation) awaitAnswer(t *testing.T, vip netip.Addr) {
	t.Helper()
	cluster.Await(t, "an answer", func() error {
		_, err := fetch(t.Context(), i.Client, netip.AddrPortFrom(vip, 80))
		return err
	})
}
