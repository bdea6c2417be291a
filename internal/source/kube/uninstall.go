// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// appsv1 is the API group of DaemonSets.
	appsv1 = "apps"
	// answerTime is how long an agent that is told to end waits for the API server: the
	// time that its pod has to end is short.
	answerTime = 2 * time.Second
	// metadataOnly asks for an object without what the agent has no types for.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// Uninstalled reports whether no other agent will follow on any node, as the DaemonSet
// is gone or about to go. It asks the API server at once, as nobody follows the one
// object that is of interest only when an agent ends.
//
// Whoever uninstalls deletes the agents' rights together with the DaemonSet, or before
// the pods are told: an agent that may not ask any more is uninstalled too. Should
// somebody only have taken that right away, then an agent that is replaced leaves its
// node as it would for maintenance: routers are led elsewhere first, and the next agent
// begins anew. The opposite mistake is worse: routers go on sending to a node that
// nobody looks after. An API server that doesn't answer says nothing: it is away, and
// with it who could have deleted something.
func (s *Source) Uninstalled(ctx context.Context) bool {
	if s.DaemonSet == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	deleted, err := s.daemonSetDeleted(ctx)
	switch {
	case err == nil:
		return deleted
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		s.Log.Info("no other agent will follow", "namespace", s.Namespace, "daemonset", s.DaemonSet, "answer", err)
		return true
	}
	s.Log.Warn("whether another agent follows isn't known", "error", err)
	return false
}

// daemonSetDeleted reports whether the DaemonSet waits for its pods to go.
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

// Forget removes what was saved for a next agent, once Run has ended.
func (s *Source) Forget() error { return os.RemoveAll(s.StateDir) }
