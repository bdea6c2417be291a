// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/internal/version"
)

// KubernetesOptions are for a node whose services come from a cluster.
type KubernetesOptions struct {
	On                                         bool
	Kubeconfig, NodeName, Namespace, DaemonSet string
	// ControlKubeconfig is the kubeconfig file of the control cluster, which has LoadBalancers and
	// all other objects of Fairlead; empty if that is the node's cluster.
	ControlKubeconfig string
	// HashSeedSecret is the Secret with the hash seed; empty for the seed of the file.
	HashSeedSecret string
}

// Node is the name of this node's Node.
func (o *KubernetesOptions) Node() (string, error) {
	if name := cmp.Or(o.NodeName, os.Getenv("NODE_NAME")); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	return strings.ToLower(host), err
}

// Load returns how the API server of the node's cluster is reached, and the agent's namespace.
func (o *KubernetesOptions) Load() (cluster *rest.Config, namespace string, err error) {
	return kube.LoadConfig(o.Kubeconfig, o.Namespace, "fairlead-agent/"+version.Version)
}

// Kubernetes joins a cluster with a file that has the node's own settings.
type Kubernetes struct {
	*config.Source[*config.Config] // the file's; the cluster is followed anyway
	Cluster                        *kube.Source
	// own completes the settings.
	own  ownNode
	seed uint64

	// mu guards routes, and is held while they are applied.
	mu sync.Mutex
	// routes are the cluster's, with the file's delay.
	routes source.Routes
}

// OpenKubernetes follows a cluster until ctx ends. It returns when this node is
// known.
func OpenKubernetes(ctx context.Context, path string, k KubernetesOptions, o Options) (*Kubernetes, error) {
	settings, err := config.Open(path, o.Log, config.ParseKubernetes)
	if err != nil {
		return nil, err
	}
	conf := settings.Config()
	name, err := k.Node()
	if err != nil {
		return nil, err
	}
	cluster, namespace, err := k.Load()
	if err != nil {
		return nil, err
	}
	s := &Kubernetes{Source: settings, seed: conf.Dataplane.HashSeed}
	options := kube.Options{
		Config: kube.Config{
			Node: name, Limits: o.Limits.Of(string(conf.Dataplane.Kind)), MaxServices: conf.Dataplane.Services, MaxBackends: conf.Dataplane.Backends, TunnelEnds: len(conf.Node.TunnelEnds) > 0,
		},
		OwnAddresses: s.addresses, API: cluster, Namespace: namespace, DaemonSet: k.DaemonSet, StateDir: o.stateDir(name), Log: o.Log,
	}
	if k.ControlKubeconfig != "" {
		if options.Control, _, err = kube.LoadConfig(k.ControlKubeconfig, namespace, "fairlead-agent/"+version.Version); err != nil {
			return nil, fmt.Errorf("control cluster: %w", err)
		}
	}
	if conf.BGP != nil {
		options.ASN, s.routes.ShutdownDelay = conf.BGP.ASN, conf.BGP.ShutdownDelay
	}
	if s.Cluster, err = kube.Open(options); err != nil {
		return nil, err
	}
	s.Cluster.Start(ctx)
	if k.HashSeedSecret != "" {
		if s.seed, err = s.Cluster.HashSeed(ctx, k.HashSeedSecret); err != nil {
			return nil, err
		}
	}
	four, six := s.Cluster.Addresses(ctx)
	s.own, err = findOwnNode(name, conf, four, six)
	return s, err
}

// addresses are the addresses of the interfaces that the agent balances at.
func (s *Kubernetes) addresses() (all []netip.Addr) {
	for _, name := range s.own.interfaces {
		if i, err := net.InterfaceByName(name); err == nil {
			all = append(all, addressesOf(i)...)
		}
	}
	return all[:min(len(all), source.MaxAddresses)]
}

// Config is the file's, completed for this node. Peers and policies come by
// updates.
func (s *Kubernetes) Config() *config.Config {
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
func (s *Kubernetes) Run(ctx context.Context, apply func(source.Update) error) error {
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
		return s.Cluster.Run(ctx, func(u source.Update) error {
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
func (s *Kubernetes) Shutdown(ctx context.Context) source.Shutdown {
	plan := source.Shutdown{Reason: s.Cluster.Leaving(), Permanent: s.Cluster.Uninstalled(ctx)}
	if plan.Permanent && plan.Reason == "" {
		plan.Reason = "Fairlead is uninstalled"
	}
	return plan
}

// Forget removes the saved state of the cluster.
func (s *Kubernetes) Forget() error { return s.Cluster.Forget() }

// Followed returns how the cluster's API server is followed.
func (s *Kubernetes) Followed() source.Followed {
	return source.Followed{Cluster: new(s.Cluster.State())}
}
