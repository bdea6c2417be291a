// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/test/cluster"
)

// twoNodes are nodes with an agent each.
const twoNodes = `
{apiVersion: v1, kind: Node, metadata: {name: n1}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}}
---
apiVersion: v1
kind: Pod
metadata: {name: agent1, namespace: fairlead-system}
spec: {nodeName: n1, serviceAccountName: fairlead-agent, containers: [{name: agent, image: none}]}
---
apiVersion: v1
kind: Pod
metadata: {name: agent2, namespace: fairlead-system}
spec: {nodeName: n2, serviceAccountName: fairlead-agent, containers: [{name: agent, image: none}]}
`

// An agent writes the reports of its own node, and no other ones, nor does anybody with the account
// of the agents that isn't their pod.
func TestAPIServerReports(t *testing.T) {
	t.Parallel()
	api := cluster.StartAPI(t)
	install(t, api)
	api.Apply(t, twoNodes)
	reporter := func(o kube.Options) *kube.Source {
		t.Helper()
		o.Config, o.Namespace, o.StateDir, o.Log = kube.Config{Node: "n1", MaxServices: 8}, namespace, t.TempDir(), logger(t)
		s, err := kube.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start(t.Context())
		return s
	}
	report := &v1alpha1.BalancerNodeStatus{Version: "1.0.0", Started: metav1.Now(), Services: v1alpha1.ServiceCounts{Total: 7}}
	own := reporter(kube.Options{API: api.AsPod(t, namespace, "fairlead-agent", "agent1")})
	cluster.Await(t, "the report of n1", func() error { return own.Report(t.Context(), report) })
	report.Services.Total = 8
	if err := own.Report(t.Context(), report); err != nil {
		t.Error(err)
	}
	want := "8 Node n1"
	if got := api.Kubectl(t, "get", "fnode", "n1", "-o", "jsonpath={.status.services.total} {.metadata.ownerReferences[*].kind} {.metadata.ownerReferences[*].name}"); got != want {
		t.Errorf("report %q, want %q", got, want)
	}
	// As many listeners with the longest names as a report has: 900 kB.
	statistics := &v1alpha1.BalancerNodeStatisticsStatus{Reported: metav1.Unix(1, 0)}
	for n := range 1970 {
		statistics.Listeners = append(statistics.Listeners, v1alpha1.ListenerStatistics{Service: fmt.Sprintf("flb:%0371d", n), Packets: 1, Bytes: math.MaxInt64})
	}
	if err := own.ReportStatistics(t.Context(), statistics); err != nil {
		t.Error(err)
	}
	statistics.Listeners = []v1alpha1.ListenerStatistics{{Service: "flb:default/shop/https", Packets: 2, Bytes: 3, NewFlows: 1}}
	if err := own.ReportStatistics(t.Context(), statistics); err != nil {
		t.Error(err)
	}
	want = "1970-01-01T00:00:01Z flb:default/shop/https 2 3 1 Node n1"
	if got := api.Kubectl(t, "get", "fstats", "n1", "-o", "jsonpath={.status.reported} {range .status.listeners[*]}{.service} {.packets} {.bytes} {.newFlows}{end} "+
		"{.metadata.ownerReferences[*].kind} {.metadata.ownerReferences[*].name}"); got != want {
		t.Errorf("statistics %q, want %q", got, want)
	}
	refuse := func(name string, foreign *kube.Source) {
		t.Helper()
		cluster.Await(t, name+" to be refused", func() error { // the policy may be new to the API server
			for _, err := range []error{foreign.Report(t.Context(), report), foreign.ReportStatistics(t.Context(), statistics)} {
				switch {
				case err == nil:
					return errors.New("the report was written")
				case !strings.Contains(err.Error(), "forbidden"):
					return err
				}
			}
			return nil
		})
	}
	for name, o := range map[string]kube.Options{
		"the agent of n2": {API: api.AsPod(t, namespace, "fairlead-agent", "agent2")},
		"no pod":          {API: api.AsServiceAccount(t, namespace, "fairlead-agent")},
		"another account": {API: api.AsServiceAccount(t, namespace, "fairlead-controller")},
	} {
		refuse(name, reporter(o))
	}
	agent1 := api.Sender(t, api.AsPod(t, namespace, "fairlead-agent", "agent1"))
	denyObjects(t, agent1)

	// In a control cluster the user's name contains the node's.
	text, err := template(t, "controller: {nodesKubeconfigSecret: nodes}")
	if err != nil {
		t.Fatal(err)
	}
	apply(t, api, text)
	const group = "fairlead:agents"
	user := func(name string, groups ...string) kube.Options {
		return kube.Options{API: api.Config(), Control: api.As(t, name, groups...)}
	}
	named := reporter(user("fairlead:node:n1", group))
	report.Services.Total = 9
	cluster.Await(t, "a report of the user of n1", func() error {
		return errors.Join(named.Report(t.Context(), report), named.ReportStatistics(t.Context(), statistics))
	})
	if got := api.Kubectl(t, "get", "fnode,fstats", "n1", "-o", "jsonpath={range .items[*]}{.status.services.total}{.metadata.ownerReferences}{end}"); got != "9" {
		t.Errorf("report and statistics %q, want 9 services, and no owner: the Node is in another cluster", got)
	}
	for name, o := range map[string]kube.Options{
		"the user of n2":                         user("fairlead:node:n2", group),
		"the user of no node":                    user("fairlead:node:", group),
		"a user in the group":                    user("n1", group),
		"the kubelet of n1":                      user("system:node:n1", group, "system:nodes"),
		"the user of n1 who is not in the group": user("fairlead:node:n1"),
		"the pod of n1":                          {API: api.Config(), Control: api.AsPod(t, namespace, "fairlead-agent", "agent1")},
	} {
		refuse(name, reporter(o))
	}
	user1 := api.Sender(t, api.As(t, "fairlead:node:n1", group))
	denyObjects(t, user1)
	nameless := api.Sender(t, api.As(t, "fairlead:node:", group))
	if answer := nameless(http.MethodPost, "balancernodes", reportOf(`{"generateName": "n"}`)); !strings.Contains(answer, "ValidatingAdmissionPolicy 'fairlead-agent'") {
		t.Errorf("a report of no node: answer %s, want that the policy denies it", answer)
	}
	for _, object := range []string{"balancernodes/n1", "balancernodes/n2", "balancernodestatistics/n1"} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			if answer := user1(method, object, reportOf(`{"name": "n1"}`)); !strings.Contains(answer, "cannot "+map[string]string{"GET": "get", "PUT": "update", "DELETE": "delete"}[method]) {
				t.Errorf("%s of %s: answer %s, want that the user has no right to", method, object, answer)
			}
		}
	}
}

// denyObjects checks that an agent of n1 can't write objects of other nodes, and that its own ones hold
// no other object back that is to be deleted.
func denyObjects(t *testing.T, send func(method, path, body string) string) {
	t.Helper()
	deny := func(what, resource, body string) {
		t.Helper()
		if answer := send(http.MethodPost, resource, body); !strings.Contains(answer, "ValidatingAdmissionPolicy 'fairlead-agent'") {
			t.Errorf("%s, %s: answer %s, want that the policy denies it", resource, what, answer)
		}
	}
	for name, metadata := range map[string]string{
		"a finalizer":      `{"name": "n1", "finalizers": ["example.com/hold"]}`,
		"the node waits":   `{"name": "n1", "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "1", "blockOwnerDeletion": true}]}`,
		"another node":     `{"name": "n1", "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": "1"}]}`,
		"a namespace":      `{"name": "n1", "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "n1", "uid": "1"}]}`,
		"another's report": `{"name": "n2"}`,
	} {
		deny(name, "balancernodes", reportOf(metadata))
		deny(name, "balancernodestatistics", fmt.Sprintf(`{"apiVersion": "fairlead.io/v1alpha1", "kind": "BalancerNodeStatistics", "metadata": %s,
			"status": {"reported": "2026-01-02T03:04:05Z"}}`, metadata))
	}
}

// reportOf is a BalancerNode with metadata.
func reportOf(metadata string) string {
	return fmt.Sprintf(`{"apiVersion": "fairlead.io/v1alpha1", "kind": "BalancerNode", "metadata": %s, "status": {"version": "1", "started": "2026-01-02T03:04:05Z",
		"dataPlane": "xdp", "draining": false, "services": {"total": 0, "programmed": 0, "failed": 0, "panic": 0, "drained": 0},
		"backends": {"total": 0, "inUse": 0, "unhealthy": 0, "drained": 0}, "routes": {"announced": 0, "withheld": 0, "sessions": 0}}}`, metadata)
}
