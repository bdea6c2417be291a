// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/kube"
)

// sliceServer is an API server that allows to list and watch the EndpointSlices of the namespace web.
type sliceServer struct {
	*testing.T
	mu      sync.Mutex
	version int
	slices  map[string]*discoveryv1.EndpointSlice
	// denied rejects requests, away has them fail; changed is closed at the next change of anything.
	denied, away bool
	changed      chan struct{}
}

func (s *sliceServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	allowed := r.Method == http.MethodGet && r.URL.Path == "/apis/discovery.k8s.io/v1/namespaces/web/endpointslices" &&
		r.URL.Query().Get("labelSelector") == "kubernetes.io/service-name=shop"
	if !allowed {
		s.Errorf("%s %s: not with a Role for EndpointSlices of the namespace", r.Method, r.URL)
	}
	s.mu.Lock()
	denied, away, version := s.denied, s.away, s.version
	list := discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}}
	list.ResourceVersion = fmt.Sprint(version)
	for _, es := range s.slices {
		list.Items = append(list.Items, *es)
	}
	s.mu.Unlock()
	switch {
	case away && r.URL.Query().Get("watch") != "":
		panic(http.ErrAbortHandler)
	case away:
		w.WriteHeader(http.StatusServiceUnavailable)
	case denied || !allowed:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "endpointslices is forbidden", "code": 403}`)
	case r.URL.Query().Get("watch") == "":
		_ = json.NewEncoder(w).Encode(list)
	case r.URL.Query().Get("resourceVersion") != list.ResourceVersion: // the objects aren't kept
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410}`)
	default:
		s.watch(w, r, version)
	}
}

// watch sends an event for each change until one has to be listed.
func (s *sliceServer) watch(w http.ResponseWriter, r *http.Request, version int) {
	w.(http.Flusher).Flush()
	for {
		s.mu.Lock()
		changed := s.changed
		end := s.denied || s.away
		for _, es := range s.slices {
			if es.ResourceVersion > fmt.Sprint(version) && !end {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": es})
			}
		}
		version = s.version
		s.mu.Unlock()
		if end {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// change changes the server.
func (s *sliceServer) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// set has a slice with endpoints such as "10.0.0.1 ready" at a port.
func (s *sliceServer) set(name, port string, number int32, endpoints ...string) {
	s.change(func() {
		es := &discoveryv1.EndpointSlice{
			TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number}},
		}
		if strings.HasPrefix(name, "six") {
			es.AddressType = discoveryv1.AddressTypeIPv6
		}
		es.Name, es.Namespace, es.ResourceVersion = name, "web", fmt.Sprint(s.version)
		es.Labels = map[string]string{discoveryv1.LabelServiceName: "shop"}
		for _, text := range endpoints {
			address, state, _ := strings.Cut(text, " ")
			ready, serving, terminating := state == "ready", state == "ready" || state == "terminating", state == "terminating" || state == "ending"
			es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
			})
		}
		s.slices[name] = es
	})
}

// followed has the reports about a service.
type followed struct {
	*testing.T
	reports chan string
}

// follow follows a port of the Service until the test ends.
func follow(t *testing.T, s *sliceServer, port string, forward lb.Forward, vip string) *followed {
	t.Helper()
	endpoints, err := kube.NewEndpoints(startAPI(t, s), "web")
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{t, make(chan string, 1000)}
	service := &lb.Service{Name: "web", VIP: lb.VIP{Address: netip.MustParseAddr(vip), Port: 80, Protocol: lb.TCP}, Forward: forward}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		endpoints.Follow(ctx, source.Follow{Service: "shop", Port: port}, service, func(backends []lb.Backend, problems []string, err error) {
			var all []string
			for _, b := range backends {
				text := fmt.Sprintf("%s*%d", b.ID(), b.Weight)
				if b.Ending {
					text += " ending"
				}
				all = append(all, text)
			}
			text := strings.Join(append(all, problems...), ", ")
			if err != nil {
				text = "error: " + err.Error()
			}
			f.reports <- text
		})
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return f
}

// await waits for a report, and returns those before.
func (f *followed) await(want string) (before []string) {
	f.Helper()
	for over := time.After(time.Minute); ; {
		select {
		case got := <-f.reports:
			if got == want || strings.HasSuffix(want, "…") && strings.HasPrefix(got, strings.TrimSuffix(want, "…")) {
				return before
			}
			before = append(before, got)
		case <-over:
			f.Fatalf("reports %q, want %q", before[max(0, len(before)-5):], want)
		}
	}
}

// The endpoints of a port follow the API server's; while that denies or fails they stay, and after that they are exactly
// its set.
func TestFollowEndpoints(t *testing.T) {
	t.Parallel()
	s := &sliceServer{T: t, slices: map[string]*discoveryv1.EndpointSlice{}, changed: make(chan struct{}), denied: true}
	f := follow(t, s, "http", lb.NAT, "10.1.1.1")
	for _, got := range f.await("error: endpointslices is forbidden…") {
		t.Errorf("report %q before the first list", got)
	}
	s.change(func() { s.denied, s.away = false, true })
	f.await("error: the server is currently unable to handle the request…")
	s.change(func() { s.away = false })
	f.await("error: service shop has no EndpointSlices in the namespace web")

	s.set("a", "http", 8080, "10.0.0.1 ready", "10.0.0.2 ready", "10.0.0.3 unready")
	f.await("10.0.0.1:8080*1, 10.0.0.2:8080*1")
	s.set("b", "http", 8081, "10.0.0.4 ready")
	f.await("10.0.0.1:8080*1, 10.0.0.2:8080*1, 10.0.0.4:8081*1")
	s.set("a", "http", 8080, "10.0.0.1 terminating", "10.0.0.2 ready", "10.0.0.5 ending")
	f.await("10.0.0.1:8080*0 ending, 10.0.0.2:8080*1, 10.0.0.4:8081*1, 10.0.0.5:8080*0 ending")

	for _, fault := range []func(on bool){func(on bool) { s.denied = on }, func(on bool) { s.away = on }} {
		s.set("a", "http", 8080, "10.0.0.1 ready", "10.0.0.2 ready")
		s.set("b", "http", 8081, "10.0.0.4 ready")
		f.await("10.0.0.1:8080*1, 10.0.0.2:8080*1, 10.0.0.4:8081*1")
		s.change(func() { fault(true) })
		f.await("error: …")
		s.change(func() { delete(s.slices, "b") })
		s.set("a", "http", 8080, "10.0.0.2 ready", "10.0.0.6 ready")
		s.change(func() { fault(false) })
		for _, got := range f.await("10.0.0.2:8080*1, 10.0.0.6:8080*1") {
			if !strings.HasPrefix(got, "error: ") && got != "10.0.0.1:8080*1, 10.0.0.2:8080*1, 10.0.0.4:8081*1" {
				t.Errorf("report %q after the server is back", got)
			}
		}
	}
	s.set("a", "https", 8443, "10.0.0.2 ready")
	f.await("no port http (tcp) of the VIP's family at 1 endpoints")
	s.set("a", "http", 8080)
	f.await("")
}

// An endpoint at an address of the balancer itself isn't used. Modes that don't translate use one family.
func TestFollowedAddresses(t *testing.T) {
	t.Parallel()
	s := &sliceServer{T: t, slices: map[string]*discoveryv1.EndpointSlice{}, changed: make(chan struct{})}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	self := netip.MustParsePrefix(own[0].String()).Addr().String()
	s.set("six", "", 80, "fd00::1 ready")
	follow(t, s, "80", lb.GUE, "10.1.1.1").await("[fd00::1]:80*1")
	follow(t, s, "80", lb.NAT, "10.1.1.1").await("no port 80 (tcp) of the VIP's family at 0 endpoints")
	s.set("four", "", 80, "10.0.0.1 ready", self+" ready")
	follow(t, s, "80", lb.GUE, "10.1.1.1").await("10.0.0.1:80*1, endpoint " + self + " is this balancer itself")
	follow(t, s, "80", lb.GUE, "fd00:1::1").await("[fd00::1]:80*1")
}
