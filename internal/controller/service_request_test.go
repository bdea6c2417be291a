// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
)

// A Service with an annotation that doesn't exist gets no address, as it may be a misspelt request of
// one. The conditions name it, and foreign annotations that aren't read.
func TestAnnotationsOfRequest(t *testing.T) {
	for _, test := range []struct{ annotation, value, request, accepted string }{
		{"fairlead.io/address", "203.0.113.7",
			"fairlead.io/address: unknown: want fairlead.io/addresses", "False BadAnnotation fairlead.io/address: unknown: want fairlead.io/addresses"},
		{"metallb.universe.tf/address-pool", "internal", "<nil>", "True Accepted "},
		{"networking.gke.io/load-balancer-type", "Internal",
			"<nil>", "False UnreadAnnotation networking.gke.io/load-balancer-type is not read: see fairlead.io/address-pool"},
	} {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{test.annotation: test.value}}}
		kept, err := slimService(svc.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		svc = kept.(*corev1.Service)
		request, _ := serviceRequest(svc)
		got := "<nil>"
		if why := request.Invalid; why != nil {
			got = why.Error()
		}
		if got != test.request {
			t.Errorf("%s: request %s, want %s", test.annotation, got, test.request)
		}
		for _, c := range (serviceReconciler{newDeps(Options{})}).decided(svc, allocation{}) {
			if got := fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message); c.Type == v1alpha1.ConditionServiceAccepted && got != test.accepted {
				t.Errorf("%s: %s, want %s", test.annotation, got, test.accepted)
			}
		}
	}
}

// Ports that can't be served have a reason of their own, which no annotation is.
func TestReasonsOfPorts(t *testing.T) {
	ports := func(n int, protocol corev1.Protocol) *corev1.Service {
		svc := &corev1.Service{}
		for i := range n {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Port: int32(i + 1), Protocol: protocol})
		}
		return svc
	}
	bad := ports(1, corev1.ProtocolSCTP)
	bad.Annotations = map[string]string{"fairlead.io/addresses": "none"}
	for want, svc := range map[string]*corev1.Service{
		"UnsupportedProtocol": ports(1, corev1.ProtocolSCTP), "BadSpec": ports(1001, corev1.ProtocolTCP), "BadAnnotation": bad,
	} {
		_, err := serviceRequest(svc)
		if got := reasonOf(err); got != want {
			t.Errorf("%s, want %s: %v", got, want, err)
		}
	}
}

// A Service with a cloud provider's finalizer is left for ten minutes without a reason, and then with one.
func TestFinalizerOfService(t *testing.T) {
	r := serviceReconciler{newDeps(Options{DefaultClass: DefaultClassAuto})}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{cleanupFinalizer}, CreationTimestamp: metav1.Now()}}
	if wait, _ := r.unclaimed(svc); wait <= claimDelay {
		t.Errorf("waits %s", wait)
	}
	svc.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	if wait, why := r.unclaimed(svc); why == nil || wait > 0 {
		t.Errorf("error %v, waits %s", why, wait)
	}
}
