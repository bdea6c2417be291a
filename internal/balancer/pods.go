// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"sync"

	"fairlead.io/fairlead/internal/agent"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/podroute"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/internal/version"
)

// leadToPods leads VIPs to the balancer pods of the node until stop is called. Their prefixes
// are announced by a speaker in the place of the given one, if there is one.
func (o Options) leadToPods(ctx context.Context, conf *config.Config, speaker *agent.Speaker) (stop func(), err error) {
	if !o.BalancerPods {
		return func() {}, nil
	}
	api, namespace, err := kube.LoadConfig(o.Kubernetes.Kubeconfig, o.Kubernetes.Namespace, "fairlead-agent/"+version.Version)
	if err != nil {
		return nil, err
	}
	options := podroute.Options{API: api, Namespace: namespace, Node: conf.Node.Name, Log: o.Log}
	if conf.BGP != nil {
		options.ShutdownDelay = conf.BGP.ShutdownDelay
	}
	router, err := podroute.New(options)
	if err != nil {
		return nil, err
	}
	if *speaker != nil {
		*speaker = router.Announce(*speaker)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { router.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}, nil
}
