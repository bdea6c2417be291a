// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/test/await"
)

// nodesCluster has the node lb1, which is labelled rack=r1, a Service for Fairlead, and one with a
// cluster IP.
func nodesCluster() *listServer {
	return &listServer{lists: map[string]string{
		"nodes": `{"metadata": {"name": "lb1", "labels": {"rack": "r1"}}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}}`,
		"services": `{"metadata": {"name": "web", "namespace": "default"},
			"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}, "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.2"}]},
				"conditions": [{"type": "fairlead.io/Served", "status": "True", "message": "main"}]}},
			{"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": {"type": "ClusterIP", "clusterIPs": ["10.96.0.1"]}}`,
	}}
}

// controlCluster has a LoadBalancer with a member outside of the nodes' cluster, one at its node and
// one at a cluster IP, and peers of two racks.
func controlCluster() *listServer {
	peer := `{"metadata": {"name": %q}, "spec": {"address": %q, "asn": 65000, "passwordSecretRef": {"name": %q}, "nodeSelector": {"matchLabels": {"rack": %q}}}}`
	return &listServer{lists: map[string]string{
		"loadbalancergroups": `{"metadata": {"name": "main"}, "spec": {"nodeSelector": {}, "loadBalancers": {"memberNetworks": ["0.0.0.0/0"]}},
			"status": {"nodes": [{"name": "lb1"}]}}`,
		"loadbalancers": `{"metadata": {"name": "db", "namespace": "shop"}, "spec": {"forward": "nat", "listeners": [{"name": "sql", "port": 5432, "pool": "sql"}],
			"pools": [{"name": "sql", "members": [{"address": "203.0.113.1", "port": 1}, {"address": "192.0.2.11", "port": 2}, {"address": "10.96.0.1", "port": 3}]}]},
			"status": {"address": "198.51.100.1", "group": "main"}}`,
		"addresspools": `{"metadata": {"name": "main"}, "spec": {"addresses": ["198.51.100.0/24"]}}`,
		"namespaces":   `{"metadata": {"name": "shop"}}`,
		"bgppeers":     fmt.Sprintf(peer+","+peer, "a", "192.0.2.1", "own", "r1", "b", "192.0.2.2", "other", "r2"),
	}}
}

// An agent with a control cluster reads its Node and the networks of its own cluster, and all else,
// but Services, of the control cluster.
func TestControlCluster(t *testing.T) {
	t.Parallel()
	nodes, control := nodesCluster(), controlCluster()
	updates := make(chan source.Update, 8)
	s := runSourceOf(t, startAPI(t, nodes), startAPI(t, control), t.TempDir(), func(u source.Update) error {
		updates <- u
		return nil
	})
	u := receive(t, updates)
	var served []string
	for _, svc := range u.Changed {
		served = append(served, svc.Name)
		for _, b := range svc.Backends {
			served = append(served, b.ID().String())
		}
	}
	if got, want := strings.Join(served, " "), "flb:shop/db/sql 203.0.113.1:1"; got != want {
		t.Errorf("services %q, want %q", got, want)
	}
	// The state has the problems once the update has been applied.
	for deadline := time.Now().Add(await.Patience); s.State().Synced.IsZero(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not synced: %+v", s.State())
		}
	}
	problems := fmt.Sprint(s.State().Problems)
	for _, want := range []string{"192.0.2.11 is in the network Node", "10.96.0.1 is in the network Service"} {
		if !strings.Contains(problems, want) {
			t.Errorf("problems %s, want %q", problems, want)
		}
	}
	lists := func(s *listServer) string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Join(slices.Compact(slices.Sorted(slices.Values(s.listed))), " ")
	}
	if got, want := lists(nodes), "nodes services"; got != want {
		t.Errorf("%s listed in the nodes' cluster, want %s", got, want)
	}
	if got, want := lists(control), "addresspools bgppeers loadbalancergroups loadbalancers namespaces secrets"; got != want {
		t.Errorf("%s listed in the control cluster, want %s", got, want)
	}
	if got := control.requested(); !slices.Equal(got, []string{"own"}) {
		t.Errorf("Secrets %q requested, want that of the node's peer", got)
	}
}

// recorder is an API server that records the objects that are written.
type recorder struct {
	http.Handler
	written chan string
}

func (f recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPatch {
		f.Handler.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
	f.written <- string(body)
}

// While the nodes' cluster is away, that is a problem of its lists only: the agent continues with the
// control cluster. Its reports there have no owner, as the Node isn't there.
func TestNodesClusterAway(t *testing.T) {
	t.Parallel()
	nodes := httptest.NewServer(nodesCluster())
	control := recorder{controlCluster(), make(chan string, 1)}
	updates := make(chan source.Update, 8)
	s := runSourceOf(t, &rest.Config{Host: nodes.URL}, startAPI(t, control), t.TempDir(), func(u source.Update) error {
		updates <- u
		return nil
	})
	receive(t, updates)
	nodes.CloseClientConnections()
	nodes.Close()
	problem := func() bool {
		return slices.ContainsFunc(s.State().Problems, func(p v1alpha1.NodeProblem) bool {
			return strings.HasPrefix(p.Object, "Node ") && strings.HasPrefix(p.Message, "can't be watched: ")
		})
	}
	for deadline := time.Now().Add(await.Patience); !problem(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no problem that Nodes can't be watched: %+v", s.State())
		}
	}
	if state := s.State(); !state.Reachable || state.Error != "" {
		t.Errorf("the control cluster counts as unreachable: %+v", state)
	}
	if err := s.Report(t.Context(), &v1alpha1.BalancerNodeStatus{Version: "1"}); err != nil {
		t.Fatal(err)
	}
	var report struct{ Metadata map[string]any }
	if err := json.Unmarshal([]byte(receive(t, control.written)), &report); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(report.Metadata); got != "map[name:lb1]" {
		t.Errorf("metadata of the report: %s, want the name only", got)
	}
}
