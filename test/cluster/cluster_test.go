// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/test/cluster"
)

// web is a pod on every node, and their Service.
const web = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 2
      containers:
      - name: web
        image: localhost/nginx:1
        imagePullPolicy: Never
        readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
`

// One cluster goes through all that tests do with clusters, and nothing is left of
// it.
func TestCluster(t *testing.T) {
	dir := ""
	t.Run("lives", func(t *testing.T) {
		c := cluster.Start(t, cluster.Options{Nodes: 3, KubeProxy: "nftables"})
		dir = c.Dir()
		c.Load(t, cluster.NginxImage(t), cluster.ToolsImage(t))
		c.Apply(t, web)
		c.Kubectl(t, "rollout", "status", "daemonset/web", "--timeout=60s")
		for _, step := range []struct {
			name string
			run  func(*testing.T, *cluster.Cluster)
		}{
			{"control plane has its own MAC address", controlPlaneMAC},
			{"pods answer", podsAnswer},
			{"services of kube-proxy", servicesAnswer},
			{"pods reach the API server", podsReachAPI},
			{"router learns routes", routerLearns},
			{"kubelet restarts", kubeletRestarts},
			{"API server is away", apiIsAway},
			{"power is cut", powerIsCut},
		} {
			if !t.Run(step.name, func(t *testing.T) { step.run(t, c) }) {
				return // the others would only say the same
			}
		}
	})
	if left := traces(t, dir); dir != "" && left != (trace{}) {
		t.Errorf("left are %+v", left)
	}
}

// controlPlaneMAC holds what powerIsCut needs: nodes reach the control plane while
// other machines come and go.
func controlPlaneMAC(t *testing.T, c *cluster.Cluster) {
	own, ports, err := c.Bridge()
	if err != nil || len(ports) != 4 || slices.Contains(ports, own) {
		t.Errorf("the bridge has %s, its ports %v; error %v; want an address that no port has", own, ports, err)
	}
}

func podsAnswer(t *testing.T, c *cluster.Cluster) {
	for _, from := range []*cluster.Machine{c.Router, c.Client} {
		for _, p := range podsOf(t, c, 3) {
			for _, a := range p.Status.PodIPs {
				checkAnswer(t, from, a.IP, p.Name)
			}
		}
	}
}

func servicesAnswer(t *testing.T, c *cluster.Cluster) {
	service, err := c.Clients().CoreV1().Services("default").Get(t.Context(), "web", meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range service.Spec.ClusterIPs {
		cluster.Await(t, 20*time.Second, "an answer from Service "+a, func() error {
			_, err := get(c.Node(t, "n1").Machine, a)
			return err
		})
	}
}

// podsReachAPI also runs a command in a pod, which takes the API server to the
// kubelet.
func podsReachAPI(t *testing.T, c *cluster.Cluster) {
	c.Kubectl(t, "run", "tools", "--image="+cluster.ToolsName, "--image-pull-policy=Never", "--command", "--", "sleep", "1000")
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/tools", "--timeout=60s")
	got := c.Kubectl(t, "exec", "tools", "--", "sh", "-c", "nc 10.96.0.1 443 </dev/null && hostname")
	if got != "tools\n" {
		t.Errorf("got %q, want the name of the pod", got)
	}
	c.Kubectl(t, "delete", "pod", "tools", "--now")
}

// routerLearns has BIRD announce two addresses from a node that the router knows
// nothing of.
func routerLearns(t *testing.T, c *cluster.Cluster) {
	n := c.Node(t, "n2")
	text := fmt.Sprintf("router id %s;\nprotocol device {}\nprotocol bfd {}\n"+
		"protocol static { ipv4; route 203.0.113.1/32 blackhole; }\nprotocol static { ipv6; route 2001:db8::1/128 blackhole; }\n", n.Addresses[0])
	for i, family := range []string{"ipv4", "ipv6"} {
		text += fmt.Sprintf("protocol bgp { local as %d; neighbor %s as %d; bfd yes; %s { import none; export all; }; }\n",
			cluster.NodeASN, cluster.RouterAddresses()[i], cluster.RouterASN, family)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "bird.conf")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bird := exec.CommandContext(t.Context(), "bird", "-f", "-c", config, "-s", filepath.Join(dir, "bird.ctl"), "-P", filepath.Join(dir, "bird.pid"))
	if err := n.Start(bird); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bird.Wait() }) // killed by the context
	cluster.Await(t, 20*time.Second, "routes to the node", func() error {
		for family, address := range map[string]string{"-4": "203.0.113.1", "-6": "2001:db8::1"} {
			got, err := c.Router.Run(t.Context(), "ip", family, "route", "show", address)
			if err == nil && !strings.Contains(got, "proto bgp") {
				err = fmt.Errorf("%s: got %q, want a route by BGP", address, got)
			}
			if err != nil {
				return err
			}
		}
		got, err := c.RouterShell(t.Context(), "show bfd peers brief")
		if err == nil && strings.Count(got, " up ") != 2 {
			err = errors.New(got)
		}
		return err
	})
}

// kubeletRestarts: pods don't notice.
func kubeletRestarts(t *testing.T, c *cluster.Cluster) {
	before := podOn(t, c, "n1").Status.ContainerStatuses[0].ContainerID
	c.Node(t, "n1").RestartKubelet(t)
	if after := podOn(t, c, "n1").Status.ContainerStatuses[0].ContainerID; after != before {
		t.Errorf("container is %s, want %s", after, before)
	}
}

// apiIsAway: pods go on without.
func apiIsAway(t *testing.T, c *cluster.Cluster) {
	p := podOn(t, c, "n1")
	c.Stop(t)
	if _, err := c.Clients().Discovery().ServerVersion(); err == nil {
		t.Error("a stopped API server answers")
	}
	checkAnswer(t, c.Client, p.Status.PodIP, p.Name)
	c.Start(t)
	podOn(t, c, "n1")
}

// powerIsCut: a node is gone at once, is missed, and comes back with its pod.
func powerIsCut(t *testing.T, c *cluster.Cluster) {
	n := c.Node(t, "n3")
	old := podOn(t, c, "n3")
	n.PowerCut(t)
	if text, err := get(c.Client, old.Status.PodIP); err == nil {
		t.Errorf("a pod of a node without power says %q", text)
	}
	cluster.Await(t, time.Minute, "node n3 to be missed", func() error {
		ready := c.Kubectl(t, "get", "node", "n3", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if ready != string(core.ConditionUnknown) {
			return fmt.Errorf("it is ready: %s", ready)
		}
		return nil
	})
	n.Boot(t)
	cluster.Await(t, time.Minute, "the pod of node n3 to run again", func() error {
		p := podOn(t, c, "n3")
		got, err := get(c.Client, p.Status.PodIP)
		if err == nil && got != p.Name+"\n" {
			err = fmt.Errorf("got %q, want %s", got, p.Name)
		}
		return err
	})
}

// podOn returns the pod of the DaemonSet on a node.
func podOn(t *testing.T, c *cluster.Cluster, node string) core.Pod {
	t.Helper()
	list, err := c.Clients().CoreV1().Pods("default").List(t.Context(), meta.ListOptions{
		LabelSelector: "app=web", FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("node %s has %d pods of the DaemonSet", node, len(list.Items))
	}
	return list.Items[0]
}

func podsOf(t *testing.T, c *cluster.Cluster, want int) []core.Pod {
	t.Helper()
	list, err := c.Clients().CoreV1().Pods("default").List(t.Context(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != want {
		t.Fatalf("got %d pods, want %d", len(list.Items), want)
	}
	return list.Items
}

func checkAnswer(t *testing.T, from *cluster.Machine, address, want string) {
	t.Helper()
	cluster.Await(t, 10*time.Second, "an answer from "+address, func() error {
		got, err := get(from, address)
		if err == nil && got != want+"\n" {
			err = fmt.Errorf("%s gets %q, want %q", from.Name(), got, want)
		}
		return err
	})
}

// get asks for the page at an address.
func get(from *cluster.Machine, address string) (string, error) {
	response, err := from.HTTP().Get("http://" + net.JoinHostPort(address, "80"))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}
