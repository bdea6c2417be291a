// SPDX-License-Identifier: Apache-2.0

// Package apiserver is an HTTP API with which clouds create load balancers, such as a provider
// driver of OpenStack's Octavia. "fairlead apiserver" runs it.
//
// A load balancer with its listeners, pools, members and health checks is one object of the kind
// LoadBalancer, so each request is one atomic write of the store: it is based on the version of
// the object that was read, and repeated if another one was faster. Resources have names that
// clients choose, and are created and replaced by PUT, so a repeated request changes nothing more.
//
// The store is a Kubernetes cluster, of which any number of servers can run side by side with nothing of
// their own but caches (kubernetesStore), or a file. One server has the file, takes the place of a
// cluster's API server and controller, and serves the objects to nodes (embeddedStore).
//
// Resources have the kind's fields, and the store validates them: handlers know the names of lists
// only. Authentication, authorization by project, limits and the log of writes are in one place for
// all routes (server.serve).
package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"fairlead.io/fairlead/internal/host/file"
	"fairlead.io/fairlead/internal/httpd"
	"fairlead.io/fairlead/internal/httpd/review"
)

// Options configure an API server.
type Options struct {
	// Listen is the address of the API, with TLS unless it is a loopback address.
	Listen string
	// Files have the credentials of clients, and the server's certificate.
	Files Files
	// NamespacePrefix and the name of a project are the name of the project's namespace.
	NamespacePrefix string
	// Namespace has the Leases of clients that follow statuses; empty for a server that allows no holders.
	Namespace string
	// Rate is the number of requests per second of each client; for a short time twice as many.
	Rate int
	// MetricsAddress serves /metrics, /healthz and /readyz; empty for none.
	MetricsAddress string
	// MetricsSecure serves them over TLS, and metrics to clients with a token of Kubernetes only
	// that may get /metrics.
	MetricsSecure bool
	Log           *slog.Logger
}

const (
	// connections is the largest number of connections, and so of concurrent requests. Each node
	// that follows the server has one all the time.
	connections = 1024
	// sentTimeout ends a connection with unacknowledged data (TCP_USER_TIMEOUT): hosts that vanish
	// hold none for longer.
	sentTimeout = 30 * time.Second
	// probeConnections is the limit for metrics and probes.
	probeConnections = 16

	healthPath, readyPath = "/healthz", "/readyz"
)

// RunWithKubeconfig runs an API server until ctx ends, or an error occurs. Load balancers are
// stored in the cluster of a kubeconfig file, or in the pod's cluster if the path is empty. The
// libraries log to o.Log.
func RunWithKubeconfig(ctx context.Context, kubeconfig string, o Options) error {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return fmt.Errorf("no --kubeconfig, and not running in a pod: %w", err)
		}
	} else if config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	bridge := logr.FromSlogHandler(o.Log.Handler())
	klog.SetLogger(bridge)
	ctrllog.SetLogger(bridge)
	return Run(ctx, config, o)
}

// Run is RunWithKubeconfig with another configuration, and leaves the libraries' loggers alone.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	store, err := newKubernetesStore(config, o.NamespacePrefix, o.Namespace)
	if err != nil {
		return err
	}
	return serve(ctx, store, config, o)
}

// Data are the files of an API server without a cluster.
type Data struct {
	// File has the load balancers. If there is none, it is made if Create is set, and an error
	// otherwise: agents would remove all services.
	File   string
	Create bool
	// Replace has agents serve the load balancers of the file in place of another file's, or of newer
	// ones of the same file.
	Replace bool
	// Policy is the file with the addresses and quotas of projects. It is read once.
	Policy string
}

// RunWithFile runs an API server without a cluster until ctx ends, or an error occurs.
func RunWithFile(ctx context.Context, d Data, o Options) error {
	if info, err := os.Stat(d.File); !d.Create && (errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0) {
		return fmt.Errorf("%s: there is no such file, or it is empty: --create makes one", d.File)
	}
	text, err := file.Read(d.Policy)
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	kinds, err := loadKinds()
	if err != nil {
		return err
	}
	p, err := parsePolicy(text, kinds)
	if err != nil {
		return fmt.Errorf("policy: %s: %w", d.Policy, err)
	}
	store, err := openEmbeddedStore(d.File, p, kinds)
	if err != nil {
		return err
	}
	store.replaces = d.Replace
	return errors.Join(serve(ctx, store, nil, o), store.Close())
}

// runner is a store that does something of its own while the server runs.
type runner interface {
	Store
	run(ctx context.Context) error
	// ready returns why the store can't answer all requests yet.
	ready() error
}

// serve runs a server over a store. The configuration is for the store's cluster, and nil for a
// file.
func serve(ctx context.Context, store runner, config *rest.Config, o Options) error {
	keys, err := openKeyring(o.Files, o.Log)
	if err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	api := newServer(store, keys, o.Rate, o.Log)
	listener, err := listen(ctx, o.Listen)
	if err != nil {
		return err
	}
	served := httpd.Server{Name: "API", Handler: api, Connections: connections, Log: o.Log}
	if o.Files.TLS() {
		served.TLS = keys.tls()
	} else if !listener.Addr().(*net.TCPAddr).IP.IsLoopback() {
		return errors.Join(fmt.Errorf("listen %s: without a certificate only loopback addresses are allowed", o.Listen), listener.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return store.run(ctx) })
	group.Go(func() error { return served.Serve(ctx, listener) })
	group.Go(func() error {
		keys.follow(ctx)
		return nil
	})
	if o.MetricsAddress != "" {
		group.Go(func() error { return serveMetrics(ctx, config, o, api.metrics.handler(o.Log, store.ready)) })
	}
	o.Log.Info("serving", "address", listener.Addr().String())
	return group.Wait()
}

// listen listens for connections with sentTimeout.
func listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		failed := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(sentTimeout.Milliseconds()))
		})
		return errors.Join(failed, err)
	}}
	config.SetMultipathTCP(false) // it has no such option
	return config.Listen(ctx, "tcp", address)
}

// serveMetrics serves metrics and probes until ctx ends.
func serveMetrics(ctx context.Context, config *rest.Config, o Options, handler http.Handler) error {
	var secure *tls.Config
	if o.MetricsSecure {
		reviewer, err := review.New(config)
		if err != nil {
			return err
		}
		if secure, err = review.TLS(); err != nil {
			return err
		}
		handler = reviewer.Require(handler, o.Log, healthPath, readyPath)
	}
	listener, err := net.Listen("tcp", o.MetricsAddress)
	if err != nil {
		return err
	}
	server := httpd.Server{Name: "metrics", Handler: handler, Connections: probeConnections, TLS: secure, Log: o.Log}
	return server.Serve(ctx, listener)
}
