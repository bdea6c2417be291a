// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
	"fairlead.io/fairlead/test/fuzzrand"
	"fairlead.io/fairlead/test/measured"
)

// podVIPs are the VIPs of two Deployments of balancer pods, by name.
var podVIPs = map[string][]netip.Addr{
	"first":  {netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("fd00:10:1:1::1")},
	"second": {netip.MustParseAddr("10.1.2.1"), netip.MustParseAddr("fd00:10:1:2::1")},
}

// A Deployment of balancer pods goes from one to four and back under load, next to another
// service's on two of the nodes: the router has routes by way of their nodes. The servers, whose
// Service the balancers follow, go from three to six, two and six, and are replaced. Requests on new
// connections aren't lost, and other ones end with their server only, unless they began while servers
// changed, and go through another balancer since (docs/design/tracking.md, several balancers). All pods build
// the same rings, and servers answer past them.
func TestBalancerPods(t *testing.T) {
	t.Parallel()
	i := install(t, cluster.Options{Nodes: 4}, nat, "--set-json", `agent.balancerPods=[{"namespace": "`+namespace+`", "prefixes": ["10.1.0.0/16", "fd00:10:1::/48"]}]`)
	i.Apply(t, serverPods())
	i.Apply(t, i.balancerPods(t, "first", 1))
	i.awaitPodRoutes(t, "first", 1)
	first := startLoad(t.Context(), i.Client, podVIPs["first"])
	first.goOn(t)

	i.scaleBalancers(t, "first", 4)
	i.awaitPodRoutes(t, "first", 4)
	first.goOn(t)
	i.Apply(t, i.balancerPods(t, "second", 2))
	i.awaitPodRoutes(t, "second", 2)
	i.awaitPodRoutes(t, "first", 4)
	second := startLoad(t.Context(), i.Client, podVIPs["second"])
	second.goOn(t)
	first.goOn(t)

	changing := time.Now()
	for _, servers := range []int{6, 2, 6} {
		i.scaleServers(t, servers)
		first.goOn(t)
	}
	i.Kubectl(t, "--namespace", namespace, "rollout", "restart", "deployment/server")
	i.scaleServers(t, 6)
	changed := time.Now()
	first.goOn(t)

	// The next agents keep the routes.
	i.Kubectl(t, "--namespace", namespace, "rollout", "restart", "daemonset/fairlead-agent")
	i.Kubectl(t, "--namespace", namespace, "rollout", "status", "daemonset/fairlead-agent", "--timeout="+await.Patience.String())
	i.awaitPodRoutes(t, "first", 4)
	i.awaitPodRoutes(t, "second", 2)
	first.goOn(t)

	i.scaleBalancers(t, "first", 1)
	i.awaitPodRoutes(t, "first", 1)
	i.awaitPodRoutes(t, "second", 2)
	first.goOn(t)
	i.awaitPins(t, 1+2)
	times := i.measureChanges(t, "first", *changes)
	lost := bench.Runs{}
	for name, l := range map[string]*load{"first": first, "second": second} {
		toll := l.stop()
		servers, err := i.podsOf(t.Context(), namespace, "server")
		if err != nil {
			t.Fatal(err)
		}
		ended, moved := 0, 0
		for _, b := range toll.Broken {
			switch {
			case b.pod != "" && servers[b.pod] == "":
				ended++
			case b.pod != "" && b.began.After(changing) && b.began.Before(changed):
				moved++ // its balancer alone knew its server, and ended, or the router sent it through another one
			default:
				t.Errorf("%s: broken: %s", name, b)
			}
		}
		t.Logf("%s: %d requests on %d connections answered, the slowest in %s; %d connections closed by servers, %d broken with "+
			"them, %d that began while servers changed", name, toll.Requests, toll.Connections, toll.Slowest, toll.Closed, ended, moved)
		for _, err := range toll.Lost {
			t.Errorf("%s: %v", name, err)
		}
		lost = append(lost, float64(len(toll.Lost)))
	}
	measured.Write(t, root, "pods", func(r *bench.Report) {
		r.Add("lost", "requests", lost, nil)
		r.Judge("requests on new connections lost while balancers and servers are scaled and replaced", measured.Papers, bench.AtMost(0), lost.Sum())
		wrong := 0
		for change, of := range times {
			wrong += of.wrong
			r.Add("ready_ms", "ms", measured.Runs(of.ready...), map[string]string{"pods": change})
			r.Add("routed_ms", "ms", measured.Runs(of.routed...), map[string]string{"pods": change})
		}
		r.Judge("routes to nodes without a ready balancer pod, 6.4", measured.Papers, bench.AtMost(0), float64(wrong))
	})
}

// changes is how often the number of balancer pods changes in measureChanges.
var changes = flag.Int("changes", 12, "changes of the number of balancer pods that are measured")

// delays are the times after changes of the number of balancer pods: until as many are ready, which is Kubernetes'
// share, and then until the router's table has exactly their nodes. Wrong tables had a node without a ready pod.
type delays struct {
	ready, routed []time.Duration
	wrong         int
}

// measureChanges sets the number of a Deployment's balancer pods, from one on, to random ones from 1 to 4, and returns
// the delays of "more" and of "fewer" (Takahashi, "A Study on Portable Load Balancer for Container Clusters", section
// 6.4: 1,200 changes). The table never has the node of a pod that was not ready.
func (i *installation) measureChanges(t *testing.T, name string, count int) map[string]*delays {
	t.Helper()
	random, prefix := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0)), podPrefixes(name)[0]
	all := map[string]*delays{"more": {}, "fewer": {}}
	before, err := i.podsOf(t.Context(), namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	for range count {
		replicas := 1 + random.IntN(3)
		change := "fewer"
		if replicas >= len(before) {
			replicas++
			change = "more"
		}
		start := time.Now()
		i.scaleBalancers(t, name, replicas)
		atReady := time.Duration(0)
		cluster.Await(t, fmt.Sprintf("routes to %d balancer pods", replicas), func() error {
			via, err := i.nextHopsOf(t.Context(), prefix)
			pods, podErr := i.podsOf(t.Context(), namespace, name)
			if err := errors.Join(err, podErr); err != nil {
				return err
			}
			nodes := slices.Sorted(maps.Values(pods))
			for _, node := range via {
				if !slices.Contains(nodes, node) && !slices.Contains(slices.Collect(maps.Values(before)), node) {
					all[change].wrong++
					t.Errorf("the router leads to %s, pods are on %v", node, nodes)
				}
			}
			if len(pods) == replicas && atReady == 0 {
				atReady = time.Since(start)
			}
			if len(pods) != replicas || !slices.Equal(via, nodes) {
				return fmt.Errorf("the router leads to %v, pods are on %v", via, nodes)
			}
			before = pods
			return nil
		})
		d := all[change]
		d.ready, d.routed = append(d.ready, atReady), append(d.routed, time.Since(start)-atReady)
	}
	for change, d := range all {
		t.Logf("%d changes to %s pods: ready after %v ms, the router's table after another %v ms (medians)", len(d.ready), change,
			measured.Runs(d.ready...).Median(), measured.Runs(d.routed...).Median())
	}
	return all
}

// scaleServers scales the servers, and waits until all balancers have as many and others have ended.
func (i *installation) scaleServers(t *testing.T, replicas int) {
	t.Helper()
	i.scaleBalancers(t, "server", replicas)
	i.Kubectl(t, "--namespace", namespace, "rollout", "status", "deployment/server", "--timeout="+await.Patience.String())
	cluster.Await(t, fmt.Sprintf("%d servers", replicas), func() error {
		list, err := i.Clients().CoreV1().Pods(namespace).List(t.Context(), meta.ListOptions{LabelSelector: "app=server"})
		if err == nil && len(list.Items) != replicas {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
}

// scaleBalancers scales a Deployment of balancer pods.
func (i *installation) scaleBalancers(t *testing.T, name string, replicas int) {
	t.Helper()
	i.Kubectl(t, "--namespace", namespace, "scale", "deployment/"+name, fmt.Sprintf("--replicas=%d", replicas))
}

// awaitPodRoutes waits until a Deployment has as many pods, all ready, and the router has
// routes to its prefixes by way of their nodes, and of no others.
func (i *installation) awaitPodRoutes(t *testing.T, name string, pods int) {
	t.Helper()
	cluster.Await(t, fmt.Sprintf("%d balancer pods and routes of %s", pods, name), func() error {
		ready, err := i.podsOf(t.Context(), namespace, name)
		if err != nil {
			return err
		}
		nodes := slices.Sorted(maps.Values(ready))
		if len(nodes) != pods {
			return fmt.Errorf("ready pods on %v", nodes)
		}
		for _, prefix := range podPrefixes(name) {
			if via, err := i.nextHopsOf(t.Context(), prefix); err != nil || !slices.Equal(via, nodes) {
				return fmt.Errorf("%s leads to %v, error %w; pods are on %v", prefix, via, err, nodes)
			}
		}
		return nil
	})
}

// awaitPins waits until the nodes have the data planes of so many balancer pods: a pod that
// ends leaves none.
func (i *installation) awaitPins(t *testing.T, want int) {
	t.Helper()
	cluster.Await(t, fmt.Sprintf("%d data planes of pods", want), func() error {
		var names []string
		for _, n := range i.Nodes() {
			out, err := n.Run(t.Context(), "ls", "/sys/fs/bpf/fairlead-pods")
			if err != nil {
				return err
			}
			names = append(names, strings.Fields(out)...)
		}
		if len(names) != want {
			return fmt.Errorf("there are %v", names)
		}
		return nil
	})
}

// podPrefixes are the prefixes of the VIPs of a Deployment: 10.1.N.0/24 and
// fd00:10:1:N::/64.
func podPrefixes(name string) []netip.Prefix {
	vips := podVIPs[name]
	return []netip.Prefix{netip.PrefixFrom(vips[0], 24).Masked(), netip.PrefixFrom(vips[1], 64).Masked()}
}

// serverPods are nginx with the VIPs, which end the balancers' tunnels themselves, and their Service. They
// are ready after the end of tunnels, and serve for some seconds after the balancers know that they end.
func serverPods() string {
	var flags strings.Builder
	for _, vips := range podVIPs {
		for _, vip := range vips {
			fmt.Fprintf(&flags, ", %q", "--vip="+netip.AddrPortFrom(vip, 80).String()+"/tcp")
		}
	}
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: server, namespace: %s}
spec:
  replicas: 3
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 20
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: server}}}
      containers:
      - name: nginx
        image: localhost/nginx:1
        imagePullPolicy: Never
        readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
      - name: tunnel-end
        image: %s
        imagePullPolicy: Never
        args: [node, --interface=eth0, --loopback, "--ready=:9572", --balancer=10.244.0.0/16, "--balancer=fd44::/48"%s]
        readinessProbe: {httpGet: {port: 9572}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 10}}}
        securityContext: {runAsUser: 0, capabilities: {drop: [ALL], add: [NET_ADMIN, BPF, PERFMON]}}
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: %s}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {app: server}
  ports: [{name: http, port: 80}]
`, namespace, imageName, flags.String(), namespace)
}

// balancerPods are the file of docs/guides/balancer-pods.md with another name and image, and with a
// service for each family.
func (i *installation) balancerPods(t *testing.T, name string, replicas int) string {
	t.Helper()
	const block, first, end = "```yaml web-balancer.yaml\n", "      - name: web\n", "---\n"
	page, err := os.ReadFile(root + "/docs/guides/balancer-pods.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), block)
	text, _, _ = strings.Cut(text, "```")
	head, rest, listed := strings.Cut(text, first)
	_, tail, ended := strings.Cut(rest, end)
	if !found || !listed || !ended {
		t.Fatalf("the guide has no block %q with services from %q to %q", block, first, end)
	}
	prefixes := podPrefixes(name)
	for what, with := range map[string]string{
		"replicas: 1": fmt.Sprintf("replicas: %d", replicas), "localhost/fairlead:0.1.0": imageName, "IfNotPresent": "Never",
		`"10.1.1.0/24"`: fmt.Sprintf(`"%s, %s"`, prefixes[0], prefixes[1]),
	} {
		if strings.Count(tail, what) != 1 {
			t.Fatalf("the guide's Deployment doesn't have %s once", what)
		}
		tail = strings.ReplaceAll(tail, what, with)
	}
	var services strings.Builder
	for family, vip := range podVIPs[name] {
		fmt.Fprintf(&services, "      - {name: web%d, address: %q, port: 80, forward: gue, backends: {service: shop, port: http}}\n", family, vip)
	}
	return strings.ReplaceAll(head+services.String()+end+tail, "web-balancer", name)
}
