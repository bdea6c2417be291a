// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/test/cluster"
)

// web is a pod on every node.
const web = `
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

// A cluster's pods answer, and nothing is left of it, also after a power cut.
// test/e2e/kubernetes tests the rest, with Fairlead.
func TestCluster(t *testing.T) {
	dir := ""
	t.Run("lives", func(t *testing.T) {
		c := cluster.Start(t, cluster.Options{Nodes: 3, KubeProxy: "nftables"})
		dir = c.Dir()
		c.Load(t, cluster.NginxImage(t))
		c.Apply(t, web)
		c.Kubectl(t, "rollout", "status", "daemonset/web", "--timeout=60s")
		controlPlaneMAC(t, c)
		podsAnswer(t, c)
		n := c.Node(t, "n3")
		n.PowerCut(t)
		n.Boot(t)
	})
	if left := traces(t, dir); dir != "" && left != (trace{}) {
		t.Errorf("left are %+v", left)
	}
}

// controlPlaneMAC checks that nodes reach the control plane while other machines come and
// go, as after a power cut.
func controlPlaneMAC(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	own, ports, err := c.Bridge()
	if err != nil || len(ports) != 4 || slices.Contains(ports, own) {
		t.Errorf("the bridge has %s, its ports %v; error %v; want an address that no port has", own, ports, err)
	}
}

func podsAnswer(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	list, err := c.Clients().CoreV1().Pods("default").List(t.Context(), meta.ListOptions{})
	if err != nil || len(list.Items) != 3 {
		t.Fatalf("got %d pods, error %v, want 3", len(list.Items), err)
	}
	for _, from := range []*cluster.Machine{c.Router, c.Client} {
		for _, p := range list.Items {
			for _, a := range p.Status.PodIPs {
				checkAnswer(t, from, a.IP, p.Name)
			}
		}
	}
}

func checkAnswer(t *testing.T, from *cluster.Machine, address, want string) {
	t.Helper()
	cluster.Await(t, "an answer from "+address, func() error {
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
