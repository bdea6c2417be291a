// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/test/cluster"
)

func clients(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Objects survive while the API server is away; requests fail meanwhile.
func TestAPIServerIsAway(t *testing.T) {
	t.Parallel()
	api := cluster.StartAPI(t)
	c := clients(t, api.Config()).CoreV1().ConfigMaps("default")
	if _, err := c.Create(t.Context(), &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "kept"}}, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	api.Stop(t)
	if _, err := c.Get(t.Context(), "kept", meta.GetOptions{}); err == nil {
		t.Error("a stopped API server answers")
	}
	api.Start(t)
	if _, err := c.Get(t.Context(), "kept", meta.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// Two API servers side by side know nothing of each other.
func TestAPIServerTwice(t *testing.T) {
	t.Parallel()
	one, two := cluster.StartAPI(t), cluster.StartAPI(t)
	one.Kubectl(t, "create", "namespace", "mine")
	if got := two.Kubectl(t, "get", "namespaces", "-o", "name"); strings.Contains(got, "mine") {
		t.Errorf("the other API server has %s", got)
	}
	if got := one.Kubectl(t, "get", "namespaces", "-o", "name"); !strings.Contains(got, "mine") {
		t.Errorf("the API server has %s, want namespace/mine among them", got)
	}
}

// Everybody may do what RBAC allows, and no more: by certificate, by token and from
// a program.
func TestAPIServerIdentities(t *testing.T) {
	t.Parallel()
	api := cluster.StartAPI(t)
	api.Kubectl(t, "create", "serviceaccount", "reader")
	api.Kubectl(t, "create", "clusterrole", "reader", "--verb=list", "--resource=nodes")
	api.Kubectl(t, "create", "clusterrolebinding", "reader", "--clusterrole=reader",
		"--serviceaccount=default:reader", "--user=ann", "--group=readers")
	for name, config := range map[string]*rest.Config{
		"user":            api.As(t, "ann"),
		"group":           api.As(t, "bob", "readers"),
		"service account": api.AsServiceAccount(t, "default", "reader"),
	} {
		t.Run(name, func(t *testing.T) {
			c := clients(t, config).CoreV1()
			if _, err := c.Nodes().List(t.Context(), meta.ListOptions{}); err != nil {
				t.Error(err)
			}
			if _, err := c.Secrets("default").List(t.Context(), meta.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("secrets: got %v, want that they are forbidden", err)
			}
			if text := api.Kubectl(t, "--kubeconfig", api.Kubeconfig(t, config), "get", "nodes"); text != "" {
				t.Errorf("kubectl prints %q of no nodes", text)
			}
		})
	}
}

// The controllers make an EndpointSlice of pods that only a test writes.
func TestAPIServerControllerManager(t *testing.T) {
	t.Parallel()
	api := cluster.StartAPI(t)
	api.StartControllerManager(t)
	c := clients(t, api.Config())
	node := &core.Node{ObjectMeta: meta.ObjectMeta{Name: "n1"}}
	if _, err := c.CoreV1().Nodes().Create(t.Context(), node, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	writePod(t, c, "web-1", "10.244.1.1")
	api.Kubectl(t, "create", "service", "clusterip", "web", "--tcp=80")
	cluster.Await(t, 20*time.Second, "an EndpointSlice", func() error {
		slices, err := c.DiscoveryV1().EndpointSlices("default").List(t.Context(),
			meta.ListOptions{LabelSelector: discovery.LabelServiceName + "=web"})
		if err != nil {
			return err
		}
		for _, s := range slices.Items {
			for _, e := range s.Endpoints {
				if e.Addresses[0] == "10.244.1.1" && *e.Conditions.Ready {
					return nil
				}
			}
		}
		return fmt.Errorf("slices: %v", slices.Items)
	})
}

// writePod writes what a kubelet would of a pod that is ready.
func writePod(t *testing.T, c *kubernetes.Clientset, name, address string) {
	t.Helper()
	pods := c.CoreV1().Pods("default")
	pod, err := pods.Create(t.Context(), &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       core.PodSpec{NodeName: "n1", Containers: []core.Container{{Name: "web", Image: "web"}}},
	}, meta.CreateOptions{})
	if err == nil {
		pod.Status = core.PodStatus{
			Phase: core.PodRunning, PodIP: address, PodIPs: []core.PodIP{{IP: address}},
			Conditions: []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}},
		}
		_, err = pods.UpdateStatus(t.Context(), pod, meta.UpdateOptions{})
	}
	if err != nil {
		t.Fatalf("pod %s: %v", name, err)
	}
}
