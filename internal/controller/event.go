// SPDX-License-Identifier: Apache-2.0

package controller

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tell records an Event about an object for each condition that says something else
// than before: so nothing is told again because it is looked at again, or because
// the controller was restarted. That all annotations are understood is no news.
func (o *office) tell(object client.Object, before, now []metav1.Condition) {
	for _, c := range now {
		if c.Reason == reasonAccepted || says(before, c) {
			continue
		}
		kind := corev1.EventTypeNormal
		if c.Status != metav1.ConditionTrue {
			kind = corev1.EventTypeWarning
		}
		o.events.Eventf(object, nil, kind, c.Reason, "Reconcile", "%s", c.Message)
		o.log.Info("condition changed", "object", client.ObjectKeyFromObject(object), "condition", c.Type,
			"status", c.Status, "reason", c.Reason, "message", c.Message)
	}
}
