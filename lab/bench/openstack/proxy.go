// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"fairlead.io/fairlead/lab/bench"
	cloud "fairlead.io/fairlead/lab/openstack"
)

// proxyAddress is where the provider reaches the LB API through a proxy, in the controller's namespace.
const proxyAddress = "127.0.0.1:9577"

// proxy passes the provider's requests to the LB API, and records when load balancers were written.
type proxy struct {
	close func() error

	mu      sync.Mutex
	written map[string]time.Time // the last write, by the load balancer's ID
}

// newProxy starts a proxy.
func newProxy(c *cloud.Cloud) (*proxy, error) {
	authority, err := os.ReadFile(filepath.Join(c.Dir, "server.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("server.crt: no certificate")
	}
	p := &proxy{written: map[string]time.Time{}}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: cloud.APIAddress})
	transport := c.Transport()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	forward.Transport = transport
	p.close, err = bench.Serve(c.Lab, cloud.Controller, proxyAddress, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			p.mu.Lock()
			p.written[path.Base(r.URL.Path)] = time.Now()
			p.mu.Unlock()
		}
		forward.ServeHTTP(w, r)
	}))
	return p, err
}

// write returns when a load balancer was written last.
func (p *proxy) write(id string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written[id]
}
