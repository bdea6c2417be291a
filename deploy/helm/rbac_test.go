// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/controller"
	"fairlead.io/fairlead/internal/httpd/review"
	"fairlead.io/fairlead/internal/podroute"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/test/cluster"
)

// seedSecret is the chart's Secret with the hash seed.
const seedSecret = "fairlead-hash-seed"

// world is the input of a controller and an agent: all of Fairlead's kinds, a node
// with an agent, Services that can be served, and one that can't, for a reason in two
// conditions, which repeats an Event.
const world = `
{apiVersion: fairlead.io/v1alpha1, kind: AddressPool, metadata: {name: default}, spec: {addresses: [192.0.2.0/24]}}
---
apiVersion: fairlead.io/v1alpha1
kind: LoadBalancerGroup
metadata: {name: default}
spec: {size: 1, nodeSelector: {matchLabels: {kubernetes.io/os: linux}}}
---
apiVersion: fairlead.io/v1alpha1
kind: BGPPeer
metadata: {name: leaf}
spec: {address: 192.0.2.1, asn: 65000, passwordSecretRef: {name: bgp}}
---
{apiVersion: v1, kind: Secret, metadata: {name: bgp, namespace: fairlead-system}, stringData: {password: secret}}
---
{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {kubernetes.io/os: linux}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: agent
  namespace: fairlead-system
  labels: {app.kubernetes.io/name: fairlead, app.kubernetes.io/component: agent}
spec: {nodeName: n1, serviceAccountName: fairlead-agent, containers: [{name: agent, image: none}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: odd, namespace: default, annotations: {fairlead.io/addresses: none}}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: fairlead.io/v1alpha1
kind: LoadBalancer
metadata: {name: database, namespace: default}
spec:
  forward: nat
  listeners: [{name: sql, port: 5432, pool: sql}]
  pools: [{name: sql, members: [{address: 203.0.113.1, port: 5432}]}]
`

// The chart's roles are sufficient for agents, controllers and API servers, and contain nothing
// else: an API server with these roles records the requests of all their operations.
func TestAPIServerRoles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, audit := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	api := cluster.StartAPI(t, "--audit-policy-file="+policy, "--audit-log-path="+audit)
	install(t, api)
	const values = "{bgp: {passwordSecrets: [bgp]}, agent: {balancerPods: true}, metrics: {secure: true}, " +
		"apiServer: {enabled: true, tlsSecret: tls, tokensSecret: tokens, projects: [web]}}"
	api.Kubectl(t, "create", "namespace", project)
	text, err := template(t, values)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, api, text)
	startController(t, api)
	api.Apply(t, world)
	agent := startAgent(t, api)
	cluster.Await(t, time.Minute, "a report", func() error {
		return agent.Report(t.Context(), &source.Report{Version: "1.0.0", Started: time.Now()})
	})
	if err := agent.ReportStatistics(t.Context(), &source.Statistics{Read: time.Now()}); err != nil {
		t.Error(err)
	}

	if seed, err := agent.HashSeed(t.Context(), seedSecret); err != nil || seed == 0 {
		t.Errorf("hash seed %d, %v", seed, err)
	}
	awaitServed(t, api, "service/web", "{.status.conditions[?(@.type=='fairlead.io/Served')].message}", "default")
	awaitServed(t, api, "loadbalancer/database", "{.status.group}", "default")
	// Check deletions with the API server itself.
	api.Kubectl(t, "delete", "service/web", "loadbalancer/database")

	if agent.Uninstalled(t.Context()) {
		t.Error("agents of a DaemonSet that is there are uninstalled")
	}

	useAPIServer(t, api)

	for _, account := range []string{"fairlead-agent", "fairlead-controller", "fairlead-apiserver"} {
		askWhether(t, api, account)
	}

	allowed := allowed(t, rendered(t, values))
	cluster.Await(t, time.Minute, "every right to be used", func() error {
		missing, unused := compare(allowed, asked(t, audit))
		if len(missing)+len(unused) > 0 {
			return fmt.Errorf("missing: %v; unused: %v", missing, unused)
		}
		return nil
	})
}

// askWhether asks the API server whether an account may get its own metrics, as the account itself.
func askWhether(t *testing.T, api *cluster.API, name string) {
	t.Helper()
	account := api.AsServiceAccount(t, namespace, name)
	reviewer, err := review.New(account)
	if err != nil {
		t.Fatal(err)
	}
	request, answer := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody), httptest.NewRecorder()
	request.Header.Set("Authorization", "Bearer "+account.BearerToken)
	reviewer.Require(http.NotFoundHandler(), slog.New(slog.NewTextHandler(t.Output(), nil))).ServeHTTP(answer, request)
	if answer.Code != http.StatusForbidden {
		t.Errorf("status %d, want %d: the account has no right to its metrics", answer.Code, http.StatusForbidden)
	}
}

// awaitServed waits until a part of an object has the wanted value.
func awaitServed(t *testing.T, api *cluster.API, object, path, want string, flags ...string) {
	t.Helper()
	cluster.Await(t, time.Minute, object, func() error {
		if got := api.Kubectl(t, append(flags, "get", object, "-o", "jsonpath="+path)...); got != want {
			return fmt.Errorf("%s of %s: %q, want %q", path, object, got, want)
		}
		return nil
	})
}

// startController runs a controller as the chart's account until the test ends.
func startController(t *testing.T, api *cluster.API) {
	t.Helper()
	config := api.AsServiceAccount(t, namespace, "fairlead-controller")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- controller.Run(ctx, config, controller.Options{
			Namespace: namespace, DefaultClass: controller.DefaultClassAlways, LeaderElect: true,
			HashSeedSecret: seedSecret, AgentGrace: time.Minute, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("controller: %v", err)
		}
	})
}

// startAgent runs the part of an agent that uses the API, as the chart's account,
// until the test ends.
func startAgent(t *testing.T, api *cluster.API) *kube.Source {
	t.Helper()
	src, err := kube.Open(kube.Options{
		Config: kube.Config{Node: "n1", MaxServices: 8, ASN: 65021, WatchPolicies: true},
		API:    api.AsPod(t, namespace, "fairlead-agent", "agent"), Namespace: namespace,
		DaemonSet: "fairlead-agent", StateDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	src.Start(ctx)
	ended := make(chan error, 1)
	go func() { ended <- src.Run(ctx, func(source.Update) error { return nil }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("agent: %v", err)
		}
	})
	startPodRoutes(t, api)
	return src
}

// startPodRoutes runs the part of an agent that leads VIPs to balancer pods, of which there
// are none.
func startPodRoutes(t *testing.T, api *cluster.API) {
	t.Helper()
	router, err := podroute.New(podroute.Options{
		API: api.AsServiceAccount(t, namespace, "fairlead-agent"), Namespace: namespace, Node: "n1", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		router.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
}
