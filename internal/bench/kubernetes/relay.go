// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// relay brings connections from a lab, whose networks are its own, to the API
// server, which is reached from where this process is. TLS goes through it as it is.
type relay struct {
	listener net.Listener
	// server is the API server's host and port, and name its host.
	server, name string
	running      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

// newRelay listens on the loopback interface of the namespace that the thread is in.
func newRelay(api *rest.Config) (*relay, error) {
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
	r := &relay{
		listener: listener, conns: map[net.Conn]bool{}, name: server.Hostname(),
		server: net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "443")),
	}
	r.running.Go(r.accept)
	return r, nil
}

// kubeconfig is one by which the relay is used like the API server itself.
func (r *relay) kubeconfig(of *clientcmdapi.Config) ([]byte, error) {
	own := of.DeepCopy()
	if err := clientcmdapi.MinifyConfig(own); err != nil {
		return nil, err
	}
	if err := clientcmdapi.FlattenConfig(own); err != nil {
		return nil, err
	}
	for _, c := range own.Clusters {
		c.Server = "https://" + r.listener.Addr().String()
		c.TLSServerName = cmp.Or(c.TLSServerName, r.name)
	}
	return clientcmd.Write(*own)
}

func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return // it is closed
		}
		r.running.Go(func() { r.serve(conn) })
	}
}

// serve goes on until either side ends.
func (r *relay) serve(conn net.Conn) {
	defer conn.Close()
	server, err := net.Dial("tcp", r.server)
	if err != nil {
		return // the client is told by the end of its connection
	}
	defer server.Close()
	if !r.keep(conn, server) {
		return
	}
	defer r.forget(conn, server)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{conn, server}, {server, conn}} {
		both.Go(func() {
			// However it ends, the other direction is of no use any more.
			_, _ = io.Copy(way[0], way[1])
			conn.Close()
			server.Close()
		})
	}
	both.Wait()
}

// keep remembers connections to be closed; false: the relay is closed already.
func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = true
	}
	return !r.closed
}

func (r *relay) forget(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.conns, c)
	}
}

// close ends all connections.
func (r *relay) close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}
