// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/test/cluster"
)

// definitions has the CRDs, as the chart does.
var definitions = filepath.Join("..", "..", "deploy", "helm", "fairlead", "crds")

// server is a real API server that knows the kinds.
type server struct {
	*cluster.API
	client dynamic.Interface
}

// TestAPIServer asks a real API server, one for all tests as it takes seconds to start.
func TestAPIServer(t *testing.T) {
	s := &server{API: cluster.StartAPI(t)}
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	s.client = client
	s.Kubectl(t, "create", "-f", definitions)
	s.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	t.Run("definitions", s.testDefinitions)
	t.Run("accepted", s.testAccepted)
	t.Run("refused", s.testRefused)
	t.Run("addresses", s.testAddresses)
	t.Run("mutants", s.testMutants)
	t.Run("limits", s.testLimits)
	t.Run("typed", s.testTyped)
	t.Run("status", s.testStatus)
	t.Run("apply", s.testApply)
	t.Run("reports", s.testReports)
	t.Run("columns", s.testColumns)
	t.Run("examples", s.testExamples)
}

// resource is where objects of a kind are, in a version that has its own group in
// tests of mutants.
func (s *server) resource(k *samples, gv schema.GroupVersion) dynamic.ResourceInterface {
	r := s.client.Resource(gv.WithResource(k.resource()))
	if k.kind == "LoadBalancer" {
		return r.Namespace(metav1.NamespaceDefault)
	}
	return r
}

// try creates an object in a dry run, and returns the spec that the API server would
// store.
func (s *server) try(t *testing.T, k *samples, gv schema.GroupVersion, spec value) (value, error) {
	t.Helper()
	object, err := s.resource(k, gv).Create(t.Context(), k.object(gv, "sample", spec), metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
	})
	if err != nil {
		return nil, err
	}
	stored, _, err := unstructured.NestedMap(object.Object, "spec")
	return stored, err
}

// complaints are the causes of an API server's error: "field: message" each.
func complaints(err error) []string {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0 {
		return []string{err.Error()}
	}
	var all []string
	for _, c := range status.ErrStatus.Details.Causes {
		all = append(all, c.Field+": "+c.Message)
	}
	return all
}

// refused reports whether err is the API server's, about the field and with the
// words that want ("field: words") has.
func refused(err error, want string) bool {
	if err == nil {
		return false
	}
	field, words, _ := strings.Cut(want, ": ")
	for _, c := range complaints(err) {
		if at, message, _ := strings.Cut(c, ": "); at == field && strings.Contains(message, words) {
			return true
		}
	}
	return false
}

func (s *server) testAccepted(t *testing.T) {
	for _, k := range kinds() {
		for name, c := range k.accepted {
			t.Run(k.kind+"/"+name, func(t *testing.T) {
				sent := merge(parse(t, k.minimal), parse(t, c.patch))
				got, err := s.try(t, k, v1alpha1.GroupVersion(), sent)
				if err != nil {
					t.Fatal(err)
				}
				same(t, got, merge(sent, parse(t, c.defaults)))
			})
		}
	}
}

func (s *server) testRefused(t *testing.T) {
	for _, k := range kinds() {
		for name, c := range k.refused {
			t.Run(k.kind+"/"+name, func(t *testing.T) {
				_, err := s.try(t, k, v1alpha1.GroupVersion(), merge(parse(t, k.minimal), parse(t, c.patch)))
				switch {
				case err == nil:
					t.Errorf("accepted, want %s", c.want)
				case !refused(err, c.want):
					t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(complaints(err), "\n\t"), c.want)
				}
			})
		}
	}
	k := addressPools()
	_, err := s.try(t, k, v1alpha1.GroupVersion(), merge(parse(t, k.minimal), parse(t, "{surprise: 1}")))
	if err == nil || !strings.Contains(fmt.Sprint(err), `unknown field "spec.surprise"`) {
		t.Errorf("an unknown field: got %v", err)
	}
}
