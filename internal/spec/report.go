// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"math"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/source"
)

// clamp returns a number as the API has it.
func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// maxMessage bounds each text of a report.
const maxMessage = 256

// NodeStatus translates what a node reports of peers with these names.
func NodeStatus(r *source.Report, names map[netip.Addr]string) v1alpha1.BalancerNodeStatus {
	status := v1alpha1.BalancerNodeStatus{
		Version: r.Version, Started: metav1.NewTime(r.Started), Reported: metav1.Now(), DataPlane: r.DataPlane, Draining: r.Draining,
		Services: v1alpha1.ServiceCounts{
			Total: int32(r.Services.Total), Programmed: int32(r.Services.Programmed), Failed: int32(r.Services.Failed),
			Panic: int32(r.Services.Panic), Drained: int32(r.Services.Drained),
		},
		Backends: v1alpha1.BackendCounts{
			Total: int32(r.Backends.Total), InUse: int32(r.Backends.InUse),
			Unhealthy: int32(r.Backends.Unhealthy), Drained: int32(r.Backends.Drained),
		},
		Observed:        v1alpha1.ObservedVersions{Services: r.Observed.Services, LoadBalancers: r.Observed.LoadBalancers},
		Traffic:         v1alpha1.NodeTraffic{PacketsPerSecond: clamp(r.PacketsPerSecond), BitsPerSecond: clamp(r.BitsPerSecond)},
		Routes:          v1alpha1.RouteCounts{Announced: int32(r.Announced), Withheld: int32(r.Withheld), Sessions: int32(r.Sessions)},
		OmittedProblems: int32(r.OmittedProblems),
	}
	for _, w := range r.WithheldRoutes {
		status.Withheld = append(status.Withheld, v1alpha1.WithheldRoute{Prefix: w.Prefix.String(), Message: shortened(w.Reason)})
	}
	for _, p := range r.Failed {
		status.FailedServices = append(status.FailedServices, v1alpha1.NodeProblem{Object: p.Object, Message: shortened(p.Text)})
	}
	for _, p := range r.Problems {
		status.Problems = append(status.Problems, v1alpha1.NodeProblem{Object: p.Object, Message: shortened(p.Text)})
	}
	for _, b := range r.Unhealthy {
		status.Unhealthy = append(status.Unhealthy, v1alpha1.UnhealthyBackend{
			Service: b.Service, Backend: b.Backend.String(), Message: shortened(b.Reason), Since: metav1.NewTime(b.Since),
		})
	}
	for _, p := range r.Peers {
		status.Peers = append(status.Peers, v1alpha1.NodePeer{
			Name: names[p.Address], Address: p.Address.String(), Established: p.Established, Message: shortened(p.Reason), Since: metav1.NewTime(p.Since),
		})
	}
	return status
}

func shortened(text string) string {
	if len(text) > maxMessage {
		return strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}
