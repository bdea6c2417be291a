// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/source"
)

// State returns the current state.
func (s *Source) State() source.State {
	state := s.status.State()
	state.Problems = slices.Concat(s.lists.refused(), state.Problems)
	return state
}

// updateState updates the state after a change of the cache.
func (s *Source) updateState() {
	s.mu.Lock()
	objects, problems, ports := s.cache.Count(), s.cache.Problems(), s.cache.HealthPorts()
	s.mu.Unlock()
	s.status.SetObjects(objects, problems)
	s.checks.set(ports)
}

// Draining implements source.Reporter: the node is cordoned, being deleted, or shutting down.
func (s *Source) Draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cache.self().draining
}

// Delivered implements source.Reporter.
func (s *Source) Delivered() v1alpha1.ObservedVersions { return s.status.Delivered() }

const (
	// appsv1 is the API group of DaemonSets.
	appsv1 = "apps"
	// uninstallTimeout bounds the query of a stopping agent: its pod has little time to stop.
	uninstallTimeout = 2 * time.Second
	// uninstallInterval is the pause after a denied query.
	uninstallInterval = 200 * time.Millisecond
	// metadataOnly requests an object of a type that the client doesn't know.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// Uninstalled reports whether no other agent will follow on any node, because the DaemonSet
// is deleted or being deleted. It queries the API server, as the DaemonSet isn't watched.
//
// Uninstalling deletes the agents' permissions together with the DaemonSet, or before: an
// agent that is not allowed to query is uninstalled too, unless the API server allows it
// again within the timeout: while it starts, it doesn't know all permissions. If only the
// permission was removed, a restarted agent drains its node as for maintenance, and the next agent starts
// without its state. The opposite mistake is worse: routers would send to an unmanaged
// node. If the API server is unreachable nothing is known; then probably nothing was
// deleted either.
func (s *Source) Uninstalled(ctx context.Context) bool {
	if s.DaemonSet == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, uninstallTimeout)
	defer cancel()
	var denied error
	for {
		deleted, err := s.daemonSetDeleted(ctx)
		switch {
		case err == nil:
			return deleted
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			denied = err
		case apierrors.IsNotFound(err), denied != nil && ctx.Err() != nil:
			s.Log.Info("no other agent will follow", "namespace", s.Namespace, "daemonset", s.DaemonSet, "answer", cmp.Or(denied, err))
			return true
		default:
			s.Log.Warn("unknown whether another agent will follow", "error", err)
			return false
		}
		select {
		case <-time.After(uninstallInterval):
		case <-ctx.Done():
		}
	}
}

// daemonSetDeleted reports whether the DaemonSet is being deleted.
func (s *Source) daemonSetDeleted(ctx context.Context) (bool, error) {
	result := s.clients.core.Get().AbsPath("apis", appsv1, "v1", "namespaces", s.Namespace, "daemonsets", s.DaemonSet).
		SetHeader("Accept", metadataOnly).Do(ctx)
	if err := result.Error(); err != nil {
		return false, err
	}
	body, err := result.Raw()
	if err != nil {
		return false, err
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &object); err != nil {
		return false, fmt.Errorf("daemonset %s/%s: %w", s.Namespace, s.DaemonSet, err)
	}
	return object.DeletionTimestamp != nil, nil
}

// Forget removes the saved state, after Run has ended.
func (s *Source) Forget() error { return os.RemoveAll(s.StateDir) }
