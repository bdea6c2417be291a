// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source/file"
	"fairlead.io/fairlead/internal/source/kube"
)

// stateRoot has a folder for each node's last state.
const stateRoot = "/run/fairlead"

// kubernetesOptions are the flags of an agent that is told what to do by a
// cluster.
type kubernetesOptions struct {
	on                                                   bool
	kubeconfig, nodeName, namespace, daemonSet, stateDir string
}

func (o *kubernetesOptions) register(flags *pflag.FlagSet) {
	flags.BoolVar(&o.on, "kubernetes", false, "serve what the Kubernetes cluster of this node says")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "how the API server is reached (default: as a pod does)")
	flags.StringVar(&o.nodeName, "node-name", "", "name of this node's Node (default: $NODE_NAME, else the host's name)")
	flags.StringVar(&o.namespace, "namespace", "", "namespace with the Secrets of BGPPeers (default: the pod's)")
	flags.StringVar(&o.daemonSet, "daemonset", "", "the agents' DaemonSet: an agent that is told to end when it is gone leaves nothing behind")
	flags.StringVar(&o.stateDir, "state-dir", "", "folder for the last known state (default: "+stateRoot+"/NODE)")
}

// node is the name of this node's Node.
func (o *kubernetesOptions) node() (string, error) {
	if name := cmp.Or(o.nodeName, os.Getenv("NODE_NAME")); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	return strings.ToLower(host), err
}

// access returns how the API server is reached, and the agents' namespace.
func (o *kubernetesOptions) access() (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("kubernetes: %w", err)
	}
	config.UserAgent = "fairlead-agent/" + version
	if o.namespace != "" {
		return config, o.namespace, nil
	}
	namespace, _, err := loader.Namespace()
	return config, namespace, err
}

// kubernetesSource is a cluster, beside a file with what is the node's own to say.
type kubernetesSource struct {
	settings *file.Source[*file.Config]
	cluster  *kube.Source
	// own are the node's name, and what of it the file leaves open.
	own ownNode

	mu       sync.Mutex
	peers    []bgp.Peer
	policies []bgp.Policy
}

// openKubernetes begins to follow a cluster, until ctx ends. It returns when this
// node is known.
func openKubernetes(ctx context.Context, e env, path string, o kubernetesOptions, log *slog.Logger) (*kubernetesSource, error) {
	settings, err := file.OpenKubernetes(path, log)
	if err != nil {
		return nil, printedConfigError(e, err)
	}
	config := settings.Config()
	name, err := o.node()
	if err != nil {
		return nil, err
	}
	api, namespace, err := o.access()
	if err != nil {
		return nil, err
	}
	options := kube.Options{
		Config: kube.Config{Node: name, Limits: xdp.Limits(), TunnelEnds: len(config.Node.TunnelEnds) > 0},
		API:    api, Namespace: namespace, DaemonSet: o.daemonSet, StateDir: cmp.Or(o.stateDir, filepath.Join(stateRoot, name)), Log: log,
	}
	if config.BGP != nil {
		options.ASN = config.BGP.ASN
	}
	s := &kubernetesSource{settings: settings}
	if s.cluster, err = kube.Open(options); err != nil {
		return nil, err
	}
	s.cluster.Start(ctx)
	four, six := s.cluster.Addresses(ctx)
	s.own, err = findOwnNode(name, config, four, six)
	return s, err
}

// Config completes the file with what the cluster says.
func (s *kubernetesSource) Config() *file.Config {
	config := *s.settings.Config()
	config.Node.Name, config.Node.Interfaces = s.own.name, s.own.interfaces
	if config.BGP == nil {
		return &config
	}
	speaker := *config.BGP
	speaker.RouterID = s.own.routerID
	s.mu.Lock()
	speaker.Peers, speaker.Policies = s.peers, s.policies
	s.mu.Unlock()
	config.BGP = &speaker
	return &config
}

// State is that of the file.
func (s *kubernetesSource) State() file.State { return s.settings.State() }

// Reload reads the file again: the cluster is followed anyway.
func (s *kubernetesSource) Reload() error { return s.settings.Reload() }

// run lets both work.
func (s *kubernetesSource) run(ctx context.Context, a *agent) error {
	defer a.departures.wait()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return s.settings.Run(ctx, func(next *file.Config) error {
			a.configureRoutes(s.completed(next))
			return nil
		})
	})
	group.Go(func() error {
		return s.cluster.Run(ctx, func(u kube.Update) error {
			s.takeRoutes(a, u)
			return a.follow(ctx, u)
		})
	})
	return group.Wait()
}

// completed is Config for settings that are about to be in force.
func (s *kubernetesSource) completed(next *file.Config) *file.Config {
	config := s.Config()
	if config.BGP != nil && next.BGP != nil {
		config.BGP.ShutdownDelay = next.BGP.ShutdownDelay
	}
	return config
}

func (s *kubernetesSource) takeRoutes(a *agent, u kube.Update) {
	if !u.Routes {
		return
	}
	s.mu.Lock()
	s.peers, s.policies = u.Peers, u.Policies
	s.mu.Unlock()
	a.configureRoutes(s.Config())
}

// farewell has no reason while the agent is only replaced, as by a rolling update of
// its DaemonSet: the next one takes over.
func (s *kubernetesSource) farewell(ctx context.Context) farewell {
	f := farewell{reason: s.cluster.Leaving(), forever: s.cluster.Uninstalled(ctx)}
	if f.forever && f.reason == "" {
		f.reason = "Fairlead is uninstalled"
	}
	return f
}

func (s *kubernetesSource) forget() error { return s.cluster.Forget() }

func (s *kubernetesSource) kubernetes() *observe.Kubernetes {
	state := s.cluster.State()
	shown := &observe.Kubernetes{
		Server: state.Server, Reachable: state.Reachable, Since: state.Since, Heard: state.Heard, Error: state.Error,
		Synced: state.Synced, Restored: state.Restored, Objects: state.Objects, Problems: []observe.Problem{},
	}
	for _, p := range state.Problems {
		shown.Problems = append(shown.Problems, observe.Problem{Object: p.Object.String(), Text: p.Text})
	}
	return shown
}
