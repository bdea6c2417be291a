// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/source"
)

// maxStatistics bounds the listeners of a BalancerNodeStatistics, in bytes of JSON: etcd stores
// objects of 1.5 MiB at most.
const maxStatistics = 900_000

// Statistics translates the counters of a node. It omits the last listeners if there are too many
// for one object.
func Statistics(s *source.Statistics) v1alpha1.BalancerNodeStatisticsStatus {
	status := v1alpha1.BalancerNodeStatisticsStatus{
		Reported: metav1.NewTime(s.Read), Listeners: make([]v1alpha1.ListenerStatistics, 0, len(s.Listeners)),
	}
	size := 0
	for i := range s.Listeners {
		l := &s.Listeners[i]
		listed := v1alpha1.ListenerStatistics{
			Service: l.Service, Packets: clamp(l.Packets), Bytes: clamp(l.Bytes), NewFlows: clamp(l.NewFlows),
		}
		text, _ := json.Marshal(listed) // text and numbers: there is no error
		if size += len(text) + len(","); size > maxStatistics {
			status.OmittedListeners = int32(len(s.Listeners) - i)
			break
		}
		status.Listeners = append(status.Listeners, listed)
	}
	return status
}
