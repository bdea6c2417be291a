// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/test/cluster"
)

// web is a Deployment with a pod on every node.
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

// A cluster's pods answer the router and the client, a node can lose its power and
// come back, and nothing is left of all that.
func TestCluster(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Nodes: 3})
	c.Load(t, cluster.NginxImage(t))
	c.Apply(t, web)
	c.Kubectl(t, "rollout", "status", "daemonset/web", "--timeout=60s")
	pods := podsOf(t, c, 3)
	for _, from := range []*cluster.Machine{c.Router, c.Client} {
		for _, p := range pods {
			for _, a := range p.Status.PodIPs {
				checkAnswer(t, from, a.IP, p.Name)
			}
		}
	}
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
		if strings.Contains(address, ":") {
			address = "[" + strings.Trim(address, "[]") + "]"
		}
		got, err := get(from, "http://"+address)
		if err == nil && got != want+"\n" {
			err = fmt.Errorf("%s gets %q, want %q", from.Name(), got, want)
		}
		return err
	})
}

func get(from *cluster.Machine, url string) (string, error) {
	response, err := from.HTTP().Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", url, response.Status)
	}
	text, err := io.ReadAll(response.Body)
	return string(text), err
}
