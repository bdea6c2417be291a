// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/spec"
)

// reportTimeout bounds one write of a report.
const reportTimeout = 10 * time.Second

// Report writes what this node serves into its BalancerNode, in one request, which also creates
// it: the owner is the Node. It is an error if the Node isn't known.
func (s *Source) Report(ctx context.Context, r *source.Report) error {
	s.mu.Lock()
	own, names := s.cache.nodes[s.Node], map[netip.Addr]string{}
	if s.cache.routes != nil {
		for _, p := range s.cache.routes.Peers {
			names[p.Address] = p.Name
		}
	}
	s.mu.Unlock()
	if own == nil {
		return fmt.Errorf("no Node %s", s.Node)
	}
	report := v1alpha1.BalancerNode{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "BalancerNode"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Node, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: string(KindNode), Name: s.Node, UID: own.uid,
		}}},
		Status: spec.NodeStatus(r, names),
	}
	body, err := json.Marshal(report)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return s.clients.own.Patch(types.ApplyPatchType).Resource("balancernodes").Name(s.Node).
		Param("fieldManager", "fairlead-agent").Param("force", "true").Body(body).Do(ctx).Error()
}
