// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/test/await"
)

// An agent that starts before the API server, with nothing saved, waits for its node's
// addresses: it would keep a wrong interface.
func TestAddressesBeforeAPIServer(t *testing.T) {
	t.Parallel()
	const nodes = `{"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [
		{"metadata": {"name": "lb1"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}}]}`
	ready := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		select {
		case <-ready:
		default:
			http.Error(w, "{}", http.StatusServiceUnavailable)
			return
		}
		switch {
		case r.URL.Query().Get("sendInitialEvents") != "":
			http.Error(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}`, http.StatusUnprocessableEntity)
		case r.URL.Query().Get("watch") != "":
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/nodes"):
			fmt.Fprint(w, nodes)
		default:
			http.Error(w, "{}", http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	s := openAt(t, t.TempDir(), server.URL, "")
	s.Start(ctx)
	t.Cleanup(cancel) // before the server waits for its requests
	found := make(chan netip.Addr)
	go func() {
		four, _ := s.Addresses(ctx)
		found <- four
	}()
	select {
	case four := <-found:
		t.Fatalf("address %s of an API server that doesn't respond", four)
	case <-time.After(3 * time.Second): // with a saved state it would end after two
	}
	close(ready)
	select {
	case four := <-found:
		if four != netip.MustParseAddr("192.0.2.11") {
			t.Errorf("address %s", four)
		}
	case <-time.After(await.Patience):
		t.Error("no address")
	}
}
