// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/test/await"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// listServer is an API server with lists, as JSON items by resource, that never change.
type listServer struct {
	lists map[string]string

	mu sync.Mutex
	// secrets are the names of the requested Secrets, listed the requested lists.
	secrets, listed []string
}

// requested returns the names of the requested Secrets.
func (s *listServer) requested() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(s.secrets)))
}

func (s *listServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	resource := path.Base(r.URL.Path)
	s.mu.Lock()
	s.listed = append(s.listed, resource)
	s.mu.Unlock()
	if resource == "secrets" {
		s.mu.Lock()
		s.secrets = append(s.secrets, strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="))
		s.mu.Unlock()
	}
	version, kind := "v1", map[string]string{
		"services": "ServiceList", "nodes": "NodeList", "namespaces": "NamespaceList", "secrets": "SecretList", "endpointslices": "EndpointSliceList", "bgppeers": "BGPPeerList",
		"addresspools": "AddressPoolList", "loadbalancers": "LoadBalancerList", "loadbalancergroups": "LoadBalancerGroupList",
	}[resource]
	if group, found := strings.CutPrefix(r.URL.Path, "/apis/"); found {
		version = path.Dir(group)
	}
	fmt.Fprintf(w, `{"apiVersion": %q, "kind": %q, "metadata": {"resourceVersion": "1"}, "items": [%s]}`, version, kind, s.lists[resource])
}

// runSource runs a source of the node lb1 until the test ends.
func runSource(t *testing.T, api http.Handler, dir string, apply func(source.Update) error) {
	t.Helper()
	runSourceOf(t, startAPI(t, api), nil, dir, apply)
}

// startAPI serves an API until the test ends.
func startAPI(t *testing.T, api http.Handler) *rest.Config {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL}
}

// runSourceOf runs a source of the node lb1 of a cluster, with another control cluster or nil.
func runSourceOf(t *testing.T, api, control *rest.Config, dir string, apply func(source.Update) error) *kube.Source {
	t.Helper()
	s, err := kube.Open(kube.Options{
		Config: kube.Config{Node: "lb1", Limits: dataplanetest.Limits(), MaxServices: 4096, MaxBackends: 1 << 17, ASN: 65021},
		API:    api, Control: control, Namespace: "lb",
		StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s.Start(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, apply) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// receive returns the next value of a channel, which has to arrive.
func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(await.Patience):
		t.Fatal("nothing came")
	}
	return v
}

// An agent requests only the Secrets of peers of its own node.
func TestPeerSecrets(t *testing.T) {
	t.Parallel()
	peer := `{"metadata": {"name": %q}, "spec": {"address": %q, "asn": 65000, "passwordSecretRef": {"name": %q}, "nodeSelector": {"matchLabels": {"rack": %q}}}}`
	api := &listServer{lists: map[string]string{
		"nodes":    `{"metadata": {"name": "lb1", "labels": {"rack": "r1"}}}, {"metadata": {"name": "lb2", "labels": {"rack": "r2"}}}`,
		"bgppeers": fmt.Sprintf(peer+","+peer, "a", "192.0.2.1", "own", "r1", "b", "192.0.2.2", "other", "r2"),
	}}
	delivered := make(chan struct{}, 1)
	runSource(t, api, t.TempDir(), func(source.Update) error {
		select {
		case delivered <- struct{}{}:
		default:
		}
		return nil
	})
	receive(t, delivered) // all lists have been read
	if got := api.requested(); !slices.Equal(got, []string{"own"}) {
		t.Errorf("Secrets %q requested, want that of the node's peer", got)
	}
}

// After a rejected update all services are delivered again, with the clients that an annotation admits.
func TestRejectedUpdate(t *testing.T) {
	t.Parallel()
	api := &listServer{lists: map[string]string{
		"nodes": `{"metadata": {"name": "lb1"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}}`,
		"loadbalancergroups": `{"metadata": {"name": "main"}, "spec": {"nodeSelector": {}, "dataPlane": {"forward": "nat"}},
			"status": {"nodes": [{"name": "lb1"}]}}`,
		"services": `{"metadata": {"name": "web", "namespace": "default",
				"annotations": {"example.com/a": "b", "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8"}},
			"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}, "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]},
				"conditions": [{"type": "fairlead.io/Served", "status": "True", "message": "main"}]}}`,
		"addresspools": `{"metadata": {"name": "main"}, "spec": {"addresses": ["198.51.100.0/24"]}}`,
	}}
	const deliveries = 3
	updates := make(chan source.Update, deliveries)
	calls := 0
	runSource(t, api, t.TempDir(), func(u source.Update) error {
		if calls++; calls <= deliveries {
			updates <- u
		}
		if calls < deliveries {
			return errors.New("not now")
		}
		return nil
	})
	for i := range deliveries {
		u := receive(t, updates)
		if !u.Whole || len(u.Changed) != 1 || u.Changed[0].Name != "default/web/80" {
			t.Fatalf("update %d: %+v, want all services", i, u)
		}
		if ranges := fmt.Sprint(u.Changed[0].Sources.Allow); ranges != "[10.0.0.0/8]" {
			t.Errorf("update %d: %s admitted", i, ranges)
		}
	}
}

// A saved state that is rejected is served later, although the API server is still away.
func TestRejectedSavedState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := `{"version": 1, "node": "lb1", "asn": 65021, "services": [{"name": "default/web/80", "address": "198.51.100.1", "port": 80,
		"protocol": "tcp", "forward": "nat", "minHealthy": 1, "backends": [{"address": "192.0.2.21", "port": 80, "weight": 1}]}]}`
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	away := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	const deliveries = 3
	updates := make(chan source.Update, deliveries)
	calls := 0
	runSource(t, away, dir, func(u source.Update) error {
		updates <- u
		if calls++; calls < deliveries {
			return errors.New("not now")
		}
		return nil
	})
	for i := range deliveries {
		if u := receive(t, updates); !u.Whole || len(u.Changed) != 1 || u.Changed[0].Name != "default/web/80" {
			t.Errorf("update %d: %+v, want all services", i, u)
		}
	}
}
