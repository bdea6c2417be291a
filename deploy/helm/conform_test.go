// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// schemas writes JSON schemas of all kinds into a directory, and returns their
// location for kubeconform.
func schemas(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "-C", "tools", "run", "./kubeschema", dir)
	cmd.Dir = "../.."
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubeschema: %v\n%s", err, said)
	}
	return filepath.Join(dir, "{{.ResourceKind}}{{.KindSuffix}}.json")
}

// conform returns kubeconform's report on objects. The kinds of the Prometheus
// operator have no schema here.
func conform(t *testing.T, schemas, objects string) (string, error) {
	t.Helper()
	cmd := tool(t, kubeconformPath, "-strict", "-summary", "-skip", "PodMonitor,PrometheusRule", "-schema-location", schemas)
	cmd.Stdin = strings.NewReader(objects)
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// All objects of the chart conform to the API server's schemas and to those of
// Fairlead's kinds.
func TestConform(t *testing.T) {
	schemas := schemas(t)
	for name, values := range map[string]string{"defaults": "{}", "everything": full, "a control cluster": controlValues, "its balancers": agentsValues} {
		text, err := template(t, values, "--include-crds")
		if err != nil {
			t.Fatal(err)
		}
		if said, err := conform(t, schemas, text); err != nil {
			t.Errorf("%s: %v\n%s", name, err, said)
		}
	}
}

// Errors are found in objects of Kubernetes and of Fairlead, at any depth.
func TestConformRefuses(t *testing.T) {
	schemas := schemas(t)
	for _, c := range []struct{ object, want string }{
		{"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spc: {}}", "'spc'"},
		{"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, securityContext: {capabilities: {drp: [ALL]}}}]}}", "'drp'"},
		{"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a}, spec: {maxUnavailable: []}}", "maxUnavailable"},
		{"{apiVersion: fairlead.io/v1alpha1, kind: AddressPool, metadata: {name: a}, spec: {addresses: [192.0.2.0/24], autoAsign: true}}", "'autoAsign'"},
		{"{apiVersion: fairlead.io/v1alpha1, kind: LoadBalancerGroup, metadata: {name: a}, spec: {size: many, nodeSelector: {}}}", "size"},
		{"{apiVersion: fairlead.io/v1, kind: AddressPool, metadata: {name: a}}", "could not find schema"},
	} {
		if said, err := conform(t, schemas, c.object); err == nil || !strings.Contains(said, c.want) {
			t.Errorf("%s: want %s, kubeconform says (%v)\n%s", c.object, c.want, err, said)
		}
	}
}
