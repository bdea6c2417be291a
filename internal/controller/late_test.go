// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/test/cluster"
)

// withLateNamespaces returns the cluster for controllers that see no new namespace until release is
// called.
func (w *testCluster) withLateNamespaces() (late *testCluster, release func()) {
	released := make(chan struct{})
	own := *w
	own.config = rest.CopyConfig(w.config)
	own.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && r.URL.Path == "/api/v1/namespaces" && r.URL.Query().Has("watch") {
				response.Body = &lateBody{ReadCloser: response.Body, until: released, begun: !r.URL.Query().Has("sendInitialEvents")}
			}
			return response, err
		})
	})
	return &own, sync.OnceFunc(func() { close(released) })
}

// lateBody is a watch that is read until it has sent its initial objects
// (KEP-3157), and again later.
type lateBody struct {
	io.ReadCloser
	until <-chan struct{}
	// begun reports that the initial objects were sent.
	begun bool
	said  []byte
}

func (b *lateBody) Read(to []byte) (int, error) {
	if b.begun {
		<-b.until
	}
	n, err := b.ReadCloser.Read(to)
	b.said = append(b.said, to[:n]...)
	b.begun = b.begun || bytes.Contains(b.said, []byte("k8s.io/initial-events-end"))
	return n, err
}

// No owner is given to a group whose nodes aren't published: its agents wouldn't serve.
func unwrittenGroups(w *testCluster) {
	refusing := *w
	refusing.config = rest.CopyConfig(w.config)
	var refused, over atomic.Int32
	refusing.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if over.Load() == 0 && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/loadbalancergroups/b/status") {
				refused.Add(1)
				return nil, errors.New("refused by the test")
			}
			return next.RoundTrip(r)
		})
	})
	refusing.run()
	w.pool("main", "192.0.2.0/30")
	a := w.group("a", 1)
	w.node("na", map[string]string{"lb": "a"})
	w.made(a, "na")
	svc := w.service("web")
	w.servedBy(svc, "a")
	b := w.group("b", 1)
	w.node("nb", map[string]string{"lb": "b"})
	w.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "na"}})
	w.made(a)
	first := refused.Load()
	// On a busy machine retries are as rare as they become, one in 10 s.
	cluster.Await(w, "the other group to be refused", func() error {
		if refused.Load() < first+4 {
			return errors.New("not often enough")
		}
		return nil
	})
	w.servedBy(svc, "a")
	w.has(w.service("new"), "192.0.2.1")
	over.Store(1)
	w.servedBy(svc, "b")
	w.made(b, "nb")
}
