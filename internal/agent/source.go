// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/httpd/review"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/web"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/api"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/internal/version"
)

// File is the source of a node whose configuration file has everything.
type File struct {
	*config.Source[*config.Config]
	// Permanent says that no agent will run here again after SIGTERM.
	Permanent bool
}

// collectDelay is the time without a change of the file after which garbage is collected.
const collectDelay = 100 * time.Millisecond

// Run implements source.Source. After the first file, only what differs is applied. A large
// file leaves most of an agent's garbage: it is collected after a change, so that the next
// one isn't slowed down by a collection.
func (f File) Run(ctx context.Context, apply func(source.Update) error) error {
	var applied *config.Config
	collect := time.AfterFunc(collectDelay, runtime.GC)
	collect.Stop()
	return f.Source.Run(ctx, func(c *config.Config) error {
		err := apply(c.Update(applied))
		if err != nil {
			return err
		}
		if applied != nil {
			collect.Reset(collectDelay)
		}
		applied = c
		return nil
	})
}

// Shutdown implements Source: the node leaves with its agent.
func (f File) Shutdown(context.Context) Shutdown {
	return Shutdown{Reason: "SIGTERM", Permanent: f.Permanent}
}

// Forget implements Source.
func (File) Forget() error { return nil }

// Describe implements Source.
func (File) Describe(*observe.Status) {}

// apiSource joins an API server with a file that has all but services.
type apiSource struct {
	File
	server *api.Source
}

// openAPI returns the source of a file that names an API server.
func openAPI(file File, stateDir string, log *slog.Logger) (*apiSource, error) {
	conf := file.Config()
	server, err := api.Open(api.Options{
		Server: *conf.APIServer, Node: conf.Node.Name, Limits: Limits().Of(string(conf.Dataplane.Kind)),
		MaxServices: conf.Dataplane.Services, MaxBackends: conf.Dataplane.Backends, TunnelEnds: len(conf.Node.TunnelEnds) > 0,
		StateDir: cmp.Or(stateDir, filepath.Join(StateRoot, conf.Node.Name)), Log: log,
	})
	return &apiSource{file, server}, err
}

// Run delivers the server's services, and the file's routes.
func (s *apiSource) Run(ctx context.Context, apply func(source.Update) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return s.Source.Run(ctx, func(c *config.Config) error { return apply(source.Update{Routes: c.Update(nil).Routes}) })
	})
	group.Go(func() error { return s.server.Run(ctx, apply) })
	return group.Wait()
}

// Forget implements Source.
func (s *apiSource) Forget() error { return s.server.Forget() }

// Describe implements Source.
func (s *apiSource) Describe(status *observe.Status) { status.APIServer = new(s.server.State()) }

// Kubernetes are the options of an agent whose services come from a cluster.
type Kubernetes struct {
	On                                         bool
	Kubeconfig, NodeName, Namespace, DaemonSet string
	// ControlKubeconfig is the kubeconfig file of the control cluster, which has LoadBalancers and
	// all other objects of Fairlead; empty if that is the node's cluster.
	ControlKubeconfig string
	// HashSeedSecret is the Secret with the hash seed; empty for that of the file.
	HashSeedSecret string
	// BalancerPods leads VIPs to pods of Namespace that are balancers.
	BalancerPods bool
	// MetricsSecure serves the status page and metrics over TLS, to clients that the API server
	// allows.
	MetricsSecure bool
}

// node is the name of this node's Node.
func (o *Kubernetes) node() (string, error) {
	if name := cmp.Or(o.NodeName, os.Getenv("NODE_NAME")); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	return strings.ToLower(host), err
}

// access returns how the status page and metrics are served, and who may read them; nil for all.
// Probes need no token.
func (o *Kubernetes) access(log *slog.Logger) (*tls.Config, func(http.Handler) http.Handler, error) {
	if !o.MetricsSecure {
		return nil, nil, nil
	}
	cluster, _, err := kube.LoadConfig(o.Kubeconfig, o.Namespace, "fairlead-agent/"+version.Version)
	if err != nil {
		return nil, nil, err
	}
	reviewer, err := review.New(cluster)
	if err != nil {
		return nil, nil, err
	}
	secure, err := review.TLS()
	return secure, func(next http.Handler) http.Handler {
		return reviewer.Require(next, log, web.HealthPath, web.ReadyPath)
	}, err
}

// kubernetesSource joins a cluster with a file that has the node's own settings.
type kubernetesSource struct {
	*config.Source[*config.Config] // the file's; the cluster is followed anyway
	cluster                        *kube.Source
	// own completes the settings.
	own  ownNode
	seed uint64

	// mu guards routes, and is held while they are applied.
	mu sync.Mutex
	// routes are the cluster's, with the file's delay.
	routes source.Routes
}

// openKubernetes follows a cluster until ctx ends. It returns when this node is
// known.
func openKubernetes(ctx context.Context, path, stateDir string, o Kubernetes, log *slog.Logger) (*kubernetesSource, error) {
	settings, err := config.Open(path, log, config.ParseKubernetes)
	if err != nil {
		return nil, err
	}
	conf := settings.Config()
	name, err := o.node()
	if err != nil {
		return nil, err
	}
	cluster, namespace, err := kube.LoadConfig(o.Kubeconfig, o.Namespace, "fairlead-agent/"+version.Version)
	if err != nil {
		return nil, err
	}
	s := &kubernetesSource{Source: settings, seed: conf.Dataplane.HashSeed}
	options := kube.Options{
		Config: kube.Config{
			Node: name, Limits: Limits().Of(string(conf.Dataplane.Kind)), MaxServices: conf.Dataplane.Services, MaxBackends: conf.Dataplane.Backends, TunnelEnds: len(conf.Node.TunnelEnds) > 0,
			WatchPolicies: !conf.Dataplane.FilterPods && conf.Dataplane.Kind != config.KindIPVS,
		},
		API: cluster, Namespace: namespace, DaemonSet: o.DaemonSet, StateDir: cmp.Or(stateDir, filepath.Join(StateRoot, name)), Log: log,
	}
	if o.ControlKubeconfig != "" {
		if options.Control, _, err = kube.LoadConfig(o.ControlKubeconfig, namespace, "fairlead-agent/"+version.Version); err != nil {
			return nil, fmt.Errorf("control cluster: %w", err)
		}
	}
	if conf.BGP != nil {
		options.ASN, s.routes.ShutdownDelay = conf.BGP.ASN, conf.BGP.ShutdownDelay
	}
	if s.cluster, err = kube.Open(options); err != nil {
		return nil, err
	}
	s.cluster.Start(ctx)
	if o.HashSeedSecret != "" {
		if s.seed, err = s.cluster.HashSeed(ctx, o.HashSeedSecret); err != nil {
			return nil, err
		}
	}
	four, six := s.cluster.Addresses(ctx)
	s.own, err = findOwnNode(name, conf, four, six)
	return s, err
}

// Config is the file's, completed for this node. Peers and policies come by
// updates.
func (s *kubernetesSource) Config() *config.Config {
	conf := *s.Source.Config()
	conf.Node.Name, conf.Node.Interfaces = s.own.name, s.own.interfaces
	conf.Dataplane.HashSeed = s.seed
	if conf.BGP != nil {
		speaker := *conf.BGP
		speaker.RouterID = s.own.routerID
		conf.BGP = &speaker
	}
	return &conf
}

// Run delivers the cluster's updates, and the routes again when the file changes.
func (s *kubernetesSource) Run(ctx context.Context, apply func(source.Update) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return s.Source.Run(ctx, func(next *config.Config) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if next.BGP != nil {
				s.routes.ShutdownDelay = next.BGP.ShutdownDelay
			}
			return apply(source.Update{Routes: new(s.routes)})
		})
	})
	group.Go(func() error {
		return s.cluster.Run(ctx, func(u source.Update) error {
			if u.Routes == nil {
				return apply(u)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.routes.Peers, s.routes.Policies = u.Routes.Peers, u.Routes.Policies
			u.Routes = new(s.routes)
			return apply(u)
		})
	})
	return group.Wait()
}

// Shutdown has no reason while the agent is only replaced, as by a rolling update
// of its DaemonSet.
func (s *kubernetesSource) Shutdown(ctx context.Context) Shutdown {
	plan := Shutdown{Reason: s.cluster.Leaving(), Permanent: s.cluster.Uninstalled(ctx)}
	if plan.Permanent && plan.Reason == "" {
		plan.Reason = "Fairlead is uninstalled"
	}
	return plan
}

// Forget implements Source.
func (s *kubernetesSource) Forget() error { return s.cluster.Forget() }

// Describe implements Source.
func (s *kubernetesSource) Describe(status *observe.Status) {
	status.Kubernetes = new(s.cluster.State())
}
