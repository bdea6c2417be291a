// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The grace of an agent begins when it is seen not to be ready, however long nothing happened before.
func TestAgentGrace(t *testing.T) {
	r, now := newNodeTracker(time.Minute), time.Unix(1_000_000, 0)
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	pod := corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}}
	for _, step := range []struct {
		after        time.Duration
		agent, ready bool
		recheck      time.Duration
	}{
		{0, false, false, 0}, // never seen ready
		{time.Hour, true, true, 0},
		{time.Hour, false, true, time.Minute},
		{40 * time.Second, false, true, 20 * time.Second},
		{20 * time.Second, false, false, 0},
		{time.Second, true, true, 0},
		{time.Hour, false, true, time.Minute},
	} {
		now = now.Add(step.after)
		pod.Status.Conditions = nil
		if step.agent {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		list, recheck := r.candidates([]corev1.Node{node}, []corev1.Pod{pod}, now)
		if len(list) != 1 || list[0].Ready != step.ready || list[0].serving != step.agent || recheck != step.recheck {
			t.Errorf("%+v: %+v, recheck in %s", step, list, recheck)
		}
	}
}

// A node whose network plugin has no routes yet is not ready.
func TestNetworkUnavailable(t *testing.T) {
	node := &corev1.Node{}
	for status, ready := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: false, corev1.ConditionFalse: true} {
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: corev1.NodeNetworkUnavailable, Status: status}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
		}
		slim, err := slimNode(node.DeepCopy())
		if err != nil || nodeReady(slim.(*corev1.Node)) != ready || len(slim.(*corev1.Node).Status.Conditions) != 2 {
			t.Errorf("%s: %+v, error %v", status, slim, err)
		}
	}
}
