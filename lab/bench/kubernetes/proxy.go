// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// proxy forwards TCP connections from a lab to the API server, which only the host's
// namespace reaches.
type proxy struct {
	listener net.Listener
	// server is the API server's host and port, and name its host.
	server, name string
	running      sync.WaitGroup
	end          context.CancelFunc
}

// newProxy listens on the loopback interface of the calling thread's namespace.
func newProxy(api *rest.Config) (*proxy, error) {
	server, err := url.Parse(api.Host)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	if server.Scheme != "https" {
		return nil, fmt.Errorf("API server %s: want https://HOST:PORT", api.Host)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	p := &proxy{
		listener: listener, end: end, name: server.Hostname(),
		server: net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "443")),
	}
	p.running.Go(func() { p.accept(ctx) })
	return p, nil
}

// kubeconfig returns a kubeconfig for the API server through the proxy.
func (p *proxy) kubeconfig(of *clientcmdapi.Config) ([]byte, error) {
	own := of.DeepCopy()
	if err := clientcmdapi.MinifyConfig(own); err != nil {
		return nil, err
	}
	if err := clientcmdapi.FlattenConfig(own); err != nil {
		return nil, err
	}
	for _, c := range own.Clusters {
		c.Server = "https://" + p.listener.Addr().String()
		c.TLSServerName = cmp.Or(c.TLSServerName, p.name)
	}
	return clientcmd.Write(*own)
}

func (p *proxy) accept(ctx context.Context) {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(ctx, conn) })
	}
}

// serve forwards until either side closes, or ctx ends.
func (p *proxy) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.server)
	if err != nil {
		return // the client sees its connection closed
	}
	defer server.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(ctx, func() {
		conn.Close()
		server.Close()
	})()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{conn, server}, {server, conn}} {
		both.Go(func() {
			defer end() // the other direction too
			_, _ = io.Copy(pair[0], pair[1])
		})
	}
	both.Wait()
}

// close ends all connections.
func (p *proxy) close() {
	p.end()
	p.listener.Close()
	p.running.Wait()
}
