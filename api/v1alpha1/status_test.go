// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.io/fairlead/api/v1alpha1"
)

// status is a complete one of a kind.
func (k *samples) status() string {
	condition := func(name string) string {
		return `conditions: [{type: ` + name + `, status: "True", reason: Fine, message: "", observedGeneration: 1, lastTransitionTime: "2026-01-02T03:04:05Z"}]`
	}
	switch k.kind {
	case "AddressPool":
		return `{assigned: 3, available: 9007199254740992, ` + condition(v1alpha1.ConditionReady) + `}`
	case "BGPPeer":
		return `{nodes: 3, established: 2, ` + condition(v1alpha1.ConditionEstablished) + `}`
	case "BalancerNode":
		return `{version: 1.2.3, started: "2026-01-02T03:04:05Z", dataPlane: xdp, draining: true,
			services: {total: 9, programmed: 7, failed: 1, panic: 1, drained: 2}, backends: {total: 20, inUse: 15, unhealthy: 3, drained: 1},
			routes: {announced: 6, leaving: 1, withheld: 2, sessions: 4}, failedServices: [{object: default/web/80, message: the table is full}],
			problems: [{object: Service default/web, message: no node}], omittedProblems: 5,
			observed: {services: "71", loadBalancers: "72", bootID: "73"}, reported: "2026-01-02T03:05:05Z",
			traffic: {packetsPerSecond: 8, bitsPerSecond: 9}, withheld: [{prefix: 192.0.2.9/32, message: no backend}],
			unhealthy: [{service: default/web/80, backend: "192.168.1.21:81", message: timeout, since: "2026-01-02T03:04:05Z"}],
			peers: [{name: leaf, address: 192.168.1.254, established: false, message: connection refused, since: "2026-01-02T03:04:05Z"}], addresses: [192.168.1.11, "fd00::11"]}`
	case "BalancerNodeStatistics":
		return `{reported: "2026-01-02T03:04:05Z", omittedListeners: 2,
			listeners: [{service: "flb:default/shop/https", packets: 9007199254740992, bytes: 9223372036854775807, newFlows: 3}]}`
	case "LoadBalancerGroup":
		return `{size: 4, nodes: [{name: n1, ready: true}, {name: n2, ready: false}], readyNodes: 1, services: 7, addresses: 5, ` +
			condition(v1alpha1.ConditionProgrammed) + `}`
	}
	return `{address: 192.168.1.1, group: a, ` + condition(v1alpha1.ConditionReady) + `,
		listeners: [{name: web, accepted: true}, {name: dns, accepted: false, message: the pool is empty}],
		pools: [{name: web, accepted: true, members: [{name: "192.168.1.21:81", accepted: false, message: another port}]}]}`
}

// create stores a full sample.
func (s *server) create(t *testing.T, k *samples, name string) *unstructured.Unstructured {
	t.Helper()
	object := k.object(v1alpha1.GroupVersion(), name, parse(t, k.full))
	object.Object["status"] = parse(t, k.status())
	stored, err := s.resource(k, v1alpha1.GroupVersion()).Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// Who writes the spec can't write the status, and who writes the status can't write
// the spec.
func (s *server) testStatus(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.kind, func(t *testing.T) {
			objects := s.resource(k, v1alpha1.GroupVersion())
			object := s.create(t, k, "status")
			if got, ok := object.Object["status"]; ok {
				t.Errorf("creating wrote the status %v", got)
			}
			status := parse(t, k.status())
			object.Object["status"], object.Object["spec"] = status, parse(t, k.minimal)
			object, err := objects.UpdateStatus(t.Context(), object, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Fatal(err)
			}
			same(t, object.Object["status"].(value), status)
			same(t, object.Object["spec"].(value), parse(t, k.full))
			delete(object.Object, "status")
			if object, err = objects.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			same(t, object.Object["status"].(value), status)
		})
	}
}

// age is how old an object is said to be.
var age = regexp.MustCompile(`\b\d+(m|s)(\d+s)?\b`)

// testColumns checks the columns that kubectl get prints.
func (s *server) testColumns(t *testing.T) {
	for kind, want := range map[string]string{
		"AddressPool": `
NAME      ADDRESSES                                       AUTO    ASSIGNED   READY   AGE
columns   ["192.0.2.0/24","2001:db8::10-2001:db8::1f"]   false   3          True    AGE`,
		"BGPPeer": `
NAME      ADDRESS       ASN          NODES   ESTABLISHED   BFD    AGE
columns   2001:db8::1   4294967294   3       2             true   AGE`,
		"LoadBalancerGroup": `
NAME      SIZE   READY   PROGRAMMED   SERVICES   ADDRESSES   AGE   NODES
columns   4      1       True         7          5           AGE   [{"name":"n1","ready":true},{"name":"n2","ready":false}]`,
		"LoadBalancer": `
NAME      ADDRESS       GROUP   FORWARD   READY   AGE
columns   192.168.1.1   a       vxlan     True    AGE`,
	} {
		k := kindNamed(t, kind)
		object := s.create(t, k, "columns")
		object.Object["status"] = parse(t, k.status())
		if _, err := s.resource(k, v1alpha1.GroupVersion()).UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		got := s.Kubectl(t, "get", k.resource()+"."+v1alpha1.Group, "columns", "-o", "wide")
		if diff := cmp.Diff(cells(want), cells(age.ReplaceAllString(got, "AGE"))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", kind, diff)
		}
	}
	for short, want := range map[string]string{ // of testReports
		"fnode": `
NAME      SERVICES   PROGRAMMED   FAILED   UNHEALTHY   SESSIONS   ROUTES   PACKETS/S   DRAINING   VERSION   STARTED
columns   9          7            1        3           4          6        8           true       1.2.3     AGE`,
		"fstats": `
NAME      OMITTED   REPORTED
columns   2         AGE`,
	} {
		got := s.Kubectl(t, "get", short, "columns", "-o", "wide")
		if diff := cmp.Diff(cells(want), cells(regexp.MustCompile(`\b\d+d\b`).ReplaceAllString(got, "AGE"))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", short, diff)
		}
	}
	if got := s.Kubectl(t, "get", "fairlead", "-o", "name"); strings.Count(got, "columns") != len(kinds())+len(reports()) {
		t.Errorf("kubectl get fairlead: %q", got)
	}
	for _, short := range []string{"flb", "lbg"} {
		s.Kubectl(t, "get", short, "columns")
	}
}

// cells are the words of a table, line by line.
func cells(table string) [][]string {
	var all [][]string
	for line := range strings.Lines(strings.TrimSpace(table)) {
		all = append(all, strings.Fields(line))
	}
	return all
}

func kindNamed(t *testing.T, name string) *samples {
	t.Helper()
	for _, k := range allKinds() {
		if k.kind == name {
			return k
		}
	}
	t.Fatalf("no kind %s", name)
	return nil
}
