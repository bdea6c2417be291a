// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"fairlead.io/fairlead/test/cluster"
)

// apply applies manifests twice: they have to be idempotent.
func apply(t *testing.T, api *cluster.API, manifests string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		api.Kubectl(t, "apply", "--server-side", "-f", path)
	}
}

// install applies the manifests for an installation without Helm, and waits until the
// API server serves Fairlead's kinds.
func install(t *testing.T, api *cluster.API) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fairlead.yaml")
	if out, err := exec.CommandContext(t.Context(), "../../scripts/manifests.sh", "", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	apply(t, api, string(readFile(t, path)))
	api.Kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
}

// TestAPIServerTakesManifests applies the chart's objects to a real API server: with
// the defaults and with all values.
func TestAPIServerTakesManifests(t *testing.T) {
	t.Parallel()
	api := cluster.StartAPI(t)
	install(t, api)
	text, err := template(t, full, "--set", "metrics.podMonitor.enabled=false,metrics.prometheusRule.enabled=false") // the operator's kinds aren't there
	if err != nil {
		t.Fatal(err)
	}
	api.Kubectl(t, "create", "namespace", project)
	apply(t, api, text)
}
