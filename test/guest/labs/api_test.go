//go:build guest && amd64

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"fairlead.io/fairlead/test/await"
)

const (
	apiNamespace = "shops"
	apiAddress   = "127.0.0.1:6443"
	kubeconfig   = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://` + apiAddress + `"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`
)

// api is an API server for one EndpointSlice of the Service "shop", on the balancer: guests have no Kubernetes.
type api struct {
	mu      sync.Mutex
	slice   object
	version int
	changed chan struct{} // closed at the next change
}

// object is one of Kubernetes, or a part of it, as JSON has it.
type object = map[string]any

// endpoint is a server's address; one that terminates isn't ready, and still serves.
type endpoint struct {
	address     string
	terminating bool
}

func newAPI(t *testing.T, l lab) *api {
	t.Helper()
	a := &api{changed: make(chan struct{})}
	a.set(nil)
	var listener net.Listener
	err := l.Do(balancer, func() (err error) {
		listener, err = net.Listen("tcp", apiAddress)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: a, ReadHeaderTimeout: await.Patience}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-ended); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return a
}

// set replaces the endpoints.
func (a *api) set(endpoints []endpoint) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	listed := []object{}
	for _, e := range endpoints {
		listed = append(listed, object{
			"addresses":  []string{e.address},
			"conditions": object{"ready": !e.terminating, "serving": true, "terminating": e.terminating},
		})
	}
	a.slice = object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata": object{
			"name": "shop", "namespace": apiNamespace, "uid": "1", "resourceVersion": strconv.Itoa(a.version),
			"labels": object{"kubernetes.io/service-name": "shop"},
		},
		"addressType": "IPv4",
		"ports":       []object{{"name": "http", "port": 8080, "protocol": "TCP"}},
		"endpoints":   listed,
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *api) get() (object, int, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slice, a.version, a.changed
}

// ServeHTTP answers lists and watches of EndpointSlices in the namespace, and nothing else.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	slice, version, _ := a.get()
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch {
	case r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/"+apiNamespace+"/endpointslices":
		http.NotFound(w, r)
	case query.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(object{
			"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Invalid", "code": http.StatusUnprocessableEntity,
		})
	case query.Get("watch") == "":
		_ = json.NewEncoder(w).Encode(object{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList",
			"metadata": object{"resourceVersion": strconv.Itoa(version)}, "items": []object{slice},
		})
	default:
		seen, _ := strconv.Atoi(query.Get("resourceVersion"))
		a.watch(w, r, seen)
	}
}

// watch sends the slice whenever it is newer than the version that the client has seen.
func (a *api) watch(w http.ResponseWriter, r *http.Request, seen int) {
	for {
		slice, version, changed := a.get()
		if version > seen {
			seen = version
			if err := json.NewEncoder(w).Encode(object{"type": "MODIFIED", "object": slice}); err != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
