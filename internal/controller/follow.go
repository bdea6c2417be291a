// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

// follower fills the caches as soon as the API server answers, whoever is the leader:
// who takes over decides at once then. A controller is ready when they are filled.
type follower struct {
	*office
	cache cache.Cache
	// filled is closed when all caches are.
	filled chan struct{}
}

func newFollower(o *office, c cache.Cache) *follower {
	return &follower{office: o, cache: c, filled: make(chan struct{})}
}

// NeedLeaderElection has it run in every controller.
func (*follower) NeedLeaderElection() bool { return false }

// Start waits for the API server, and fills the caches.
func (f *follower) Start(ctx context.Context) error {
	err := f.patiently(ctx, "reach the API server", func() error {
		return f.live.List(ctx, namespaceList(), client.Limit(1))
	})
	if err != nil {
		return nil //nolint:nilerr // the controller ends, which is no error
	}
	for _, kind := range kinds() {
		if _, err := f.cache.GetInformer(ctx, kind); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the controller ends, which is no error
			}
			return fmt.Errorf("cache of %T: %w", kind, err)
		}
	}
	close(f.filled)
	f.log.Info("caches filled")
	return nil
}

// ready says why the controller isn't yet.
func (f *follower) ready(*http.Request) error {
	select {
	case <-f.filled:
		return nil
	default:
		return errors.New("the caches aren't filled yet")
	}
}

// kinds are those of which the caches have all objects.
func kinds() []client.Object {
	return []client.Object{
		&corev1.Service{}, &corev1.Node{}, &corev1.Pod{}, namespaceMetadata(),
		&v1alpha1.AddressPool{}, &v1alpha1.LoadBalancerGroup{}, &v1alpha1.LoadBalancer{},
	}
}

// Pauses between attempts at what needs the API server.
const (
	firstPause   = 250 * time.Millisecond
	longestPause = 2 * time.Second
)

// patiently tries something until it works, and says why it doesn't whenever the
// reason changes. The error is the context's.
func (o *office) patiently(ctx context.Context, what string, try func() error) error {
	said := ""
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err.Error() != said {
			said = err.Error()
			o.log.Warn("tried in vain, again soon", "to", what, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
