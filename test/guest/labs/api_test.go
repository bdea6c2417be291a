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

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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
	slice   discovery.EndpointSlice
	version int
	changed chan struct{} // closed at the next change
}

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
	server := &http.Server{Handler: a, ReadHeaderTimeout: patience}
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
	a.slice = discovery.EndpointSlice{
		TypeMeta: meta.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: meta.ObjectMeta{
			Name: "shop", Namespace: apiNamespace, UID: "1", ResourceVersion: strconv.Itoa(a.version),
			Labels: map[string]string{discovery.LabelServiceName: "shop"},
		},
		AddressType: discovery.AddressTypeIPv4,
		Ports:       []discovery.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(core.ProtocolTCP)}},
	}
	for _, e := range endpoints {
		a.slice.Endpoints = append(a.slice.Endpoints, discovery.Endpoint{
			Addresses:  []string{e.address},
			Conditions: discovery.EndpointConditions{Ready: ptr.To(!e.terminating), Serving: ptr.To(true), Terminating: ptr.To(e.terminating)},
		})
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *api) get() (discovery.EndpointSlice, int, <-chan struct{}) {
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
		_ = json.NewEncoder(w).Encode(meta.Status{
			TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: meta.StatusFailure,
			Reason: meta.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		})
	case query.Get("watch") == "":
		_ = json.NewEncoder(w).Encode(discovery.EndpointSliceList{
			TypeMeta: meta.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"},
			ListMeta: meta.ListMeta{ResourceVersion: strconv.Itoa(version)}, Items: []discovery.EndpointSlice{slice},
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
			if err := json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": slice}); err != nil {
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
