// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/source"
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

// An agent writes the report of its own node, and no other one, nor does anybody with the account
// of the agents that isn't their pod.
func TestAPIServerReports(t *testing.T) {
	t.Parallel()
	api := cluster.StartAPI(t)
	install(t, api)
	api.Apply(t, twoNodes)
	reporter := func(o kube.Options) *kube.Source {
		o.Config, o.Namespace, o.StateDir, o.Log = kube.Config{Node: "n1", MaxServices: 8}, namespace, t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil))
		s, err := kube.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		t.Cleanup(stop)
		s.Start(ctx)
		return s
	}
	report := &source.Report{Version: "1.0.0", Started: time.Now(), Services: source.ReportedServices{Total: 7}}
	own := reporter(kube.Options{API: api.AsPod(t, namespace, "fairlead-agent", "agent1")})
	cluster.Await(t, time.Minute, "the report of n1", func() error { return own.Report(t.Context(), report) })
	report.Services.Total = 8
	if err := own.Report(t.Context(), report); err != nil {
		t.Error(err)
	}
	want := "8 Node n1"
	if got := api.Kubectl(t, "get", "fnode", "n1", "-o", "jsonpath={.status.services.total} {.metadata.ownerReferences[*].kind} {.metadata.ownerReferences[*].name}"); got != want {
		t.Errorf("report %q, want %q", got, want)
	}
	for name, o := range map[string]kube.Options{
		"the agent of n2": {API: api.AsPod(t, namespace, "fairlead-agent", "agent2")},
		"no pod":          {API: api.AsServiceAccount(t, namespace, "fairlead-agent")},
		"another account": {API: api.AsServiceAccount(t, namespace, "fairlead-controller")},
	} {
		foreign := reporter(o)
		cluster.Await(t, time.Minute, name+" to be refused", func() error { // the policy may be new to the API server
			err := foreign.Report(t.Context(), report)
			switch {
			case err == nil:
				return errors.New("the report was written")
			case strings.Contains(err.Error(), "forbidden"):
				return nil
			}
			return err
		})
	}
}
