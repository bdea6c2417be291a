// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/apiserver"
	"fairlead.io/fairlead/internal/controller"
	"fairlead.io/fairlead/internal/httpd/review"
	"fairlead.io/fairlead/internal/podroute"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/test/cluster"
)

const (
	// seedSecret is the chart's Secret with the hash seed.
	seedSecret = "fairlead-hash-seed"
	// project is the namespace of the project web.
	project = "project-web"
)

// world is the input of a controller and an agent: all of Fairlead's kinds, a node
// with an agent, Services that can be served, and one that can't, for a reason in two
// conditions, which repeats an Event.
const world = `
{apiVersion: fairlead.io/v1alpha1, kind: AddressPool, metadata: {name: default}, spec: {addresses: [192.0.2.0/24]}}
---
# without owner: deleted
{apiVersion: fairlead.io/v1alpha1, kind: AssignedAddress, metadata: {name: 192.0.2.99}, spec: {address: 192.0.2.99}}
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
	const values = "{bgp: {passwordSecrets: [bgp]}, agent: {balancerPods: [{namespace: fairlead-system, prefixes: [10.1.1.0/24]}]}, metrics: {secure: true}, " +
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
	cluster.Await(t, "a report", func() error {
		return agent.Report(t.Context(), &v1alpha1.BalancerNodeStatus{Version: "1.0.0", Started: metav1.Now()})
	})
	if err := agent.ReportStatistics(t.Context(), &v1alpha1.BalancerNodeStatisticsStatus{Reported: metav1.Now()}); err != nil {
		t.Error(err)
	}

	if seed, err := agent.HashSeed(t.Context(), seedSecret); err != nil || seed == 0 {
		t.Errorf("hash seed %d, %v", seed, err)
	}
	awaitServed(t, api, "service/web", "{.status.conditions[?(@.type=='fairlead.io/Served')].message}", "default")
	awaitServed(t, api, "loadbalancer/database", "{.status.group}", "default")
	// An object is read again after a write by others.
	api.Kubectl(t, "annotate", "assignedaddresses", "--all", "example.com/written=")
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
	cluster.Await(t, "every right to be used", func() error {
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
	reviewer.Require(http.NotFoundHandler(), logger(t)).ServeHTTP(answer, request)
	if answer.Code != http.StatusForbidden {
		t.Errorf("status %d, want %d: the account has no right to its metrics", answer.Code, http.StatusForbidden)
	}
}

// awaitServed waits until a part of an object has the wanted value.
func awaitServed(t *testing.T, api *cluster.API, object, path, want string, flags ...string) {
	t.Helper()
	cluster.Await(t, object, func() error {
		if got := api.Kubectl(t, append(flags, "get", object, "-o", "jsonpath="+path)...); got != want {
			return fmt.Errorf("%s of %s: %q, want %q", path, object, got, want)
		}
		return nil
	})
}

// start runs a part of Fairlead until the test ends.
func start(t *testing.T, name string, run func(context.Context) error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	})
}

func logger(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// startController runs a controller as the chart's account.
func startController(t *testing.T, api *cluster.API) {
	t.Helper()
	config := api.AsServiceAccount(t, namespace, "fairlead-controller")
	start(t, "controller", func(ctx context.Context) error {
		return controller.Run(ctx, config, controller.Options{
			Namespace: namespace, DefaultClass: controller.DefaultClassAlways, LeaderElect: true,
			HashSeedSecret: seedSecret, AgentGrace: time.Minute, Log: logger(t),
		})
	})
}

// startAgent runs the parts of an agent that use the API, as the chart's account. There are no
// balancer pods to lead VIPs to.
func startAgent(t *testing.T, api *cluster.API) *kube.Source {
	t.Helper()
	src, err := kube.Open(kube.Options{
		Config: kube.Config{Node: "n1", MaxServices: 8, ASN: 65021},
		API:    api.AsPod(t, namespace, "fairlead-agent", "agent"), Namespace: namespace,
		DaemonSet: "fairlead-agent", StateDir: t.TempDir(), Log: logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	src.Start(t.Context())
	start(t, "agent", func(ctx context.Context) error {
		return src.Run(ctx, func(source.Update) error { return nil })
	})
	router, err := podroute.New(podroute.Options{
		API: api.AsServiceAccount(t, namespace, "fairlead-agent"), Shares: []podroute.Share{{Namespace: namespace}}, Node: "n1", Log: logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, "pod routes", func(ctx context.Context) error {
		router.Run(ctx)
		return nil
	})
	return src
}

// useAPIServer runs an API server for clouds as the chart's account, and sends requests that need
// all of its rights.
func useAPIServer(t *testing.T, api *cluster.API) {
	t.Helper()
	token, entry, err := apiserver.NewToken(apiserver.Token{ID: "cloud", Projects: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(entry.Line()), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	config := api.AsServiceAccount(t, namespace, "fairlead-apiserver")
	start(t, "API server", func(ctx context.Context) error {
		return apiserver.Run(ctx, config, apiserver.Options{
			Listen: address, Files: apiserver.Files{Tokens: path}, NamespacePrefix: "project-", Namespace: namespace, Rate: 100, Log: logger(t),
		})
	})
	send := func(method, path, body string, want int) {
		t.Helper()
		cluster.Await(t, method+" "+path, func() error {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/v1/"+path, strings.NewReader(body))
			if err != nil {
				return err
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != want {
				return fmt.Errorf("status %d, want %d", response.StatusCode, want)
			}
			return nil
		})
	}
	send("PUT", "projects/web/loadbalancers/lb", `{"forward":"nat"}`, http.StatusCreated)
	send("PUT", "projects/web/loadbalancers/lb/listeners/http", `{"port":80}`, http.StatusCreated)
	send("GET", "projects/web/loadbalancers", "", http.StatusOK)
	send("GET", "projects/web/loadbalancers/lb/status", "", http.StatusOK)
	for range 2 {
		send("GET", "statuses?holder=a", "", http.StatusOK)
	}
	awaitServed(t, api, "loadbalancer/lb", "{.status.group}", "default", "-n", project)
	send("GET", "projects/web/loadbalancers/lb/status", "", http.StatusOK)
	send("GET", "projects/web/loadbalancers/lb/statistics", "", http.StatusOK)
	send("DELETE", "projects/web/loadbalancers/lb", "", http.StatusNoContent)
}
