// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.io/fairlead/api/v1alpha1"
)

// reportTimeout bounds one write of a report.
const reportTimeout = 10 * time.Second

// Report implements source.Reporter: it writes the BalancerNode of this node, with the names of its
// peers. It is an error if the Node isn't known.
func (s *Source) Report(ctx context.Context, r *v1alpha1.BalancerNodeStatus) error {
	named := *r
	named.Peers = slices.Clone(r.Peers)
	s.mu.Lock()
	if routes := s.cache.routing.routes; routes != nil {
		for _, p := range routes.Peers {
			address := p.Address.String()
			if at := slices.IndexFunc(named.Peers, func(n v1alpha1.NodePeer) bool { return n.Address == address }); at >= 0 {
				named.Peers[at].Name = p.Name
			}
		}
	}
	s.mu.Unlock()
	if s.OwnAddresses != nil {
		for _, a := range s.OwnAddresses() {
			named.Addresses = append(named.Addresses, v1alpha1.IPAddress(a.String()))
		}
	}
	return s.writeOwn(ctx, "balancernodes", "BalancerNode", &named)
}

// ReportStatistics implements source.Reporter: it writes the BalancerNodeStatistics of this node.
// It is an error if the Node isn't known.
func (s *Source) ReportStatistics(ctx context.Context, r *v1alpha1.BalancerNodeStatisticsStatus) error {
	return s.writeOwn(ctx, "balancernodestatistics", "BalancerNodeStatistics", r)
}

// writeOwn writes the status of the object of this node, in one request, which also creates it. The
// owner is the Node, unless that is in another cluster.
func (s *Source) writeOwn(ctx context.Context, resource, kind string, status any) error {
	s.mu.Lock()
	own := s.cache.nodes[s.Node]
	s.mu.Unlock()
	if own == nil {
		return fmt.Errorf("no Node %s", s.Node)
	}
	meta := metav1.ObjectMeta{Name: s.Node}
	if s.Control == nil {
		meta.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: string(KindNode), Name: s.Node, UID: own.uid,
		}}
	}
	body, err := json.Marshal(struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata"`
		Status            any `json:"status"`
	}{
		metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: kind},
		meta,
		status,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return s.control.own.Patch(types.ApplyPatchType).Resource(resource).Name(s.Node).
		Param("fieldManager", "fairlead-agent").Param("force", "true").Body(body).Do(ctx).Error()
}
