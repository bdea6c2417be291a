// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"os"
	"path/filepath"
	"testing"

	"fairlead.io/fairlead/test/cluster"
)

// apply gives manifests to the API server, which checks them as no schema does. It
// has to take the same ones again.
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

// install gives the plain manifests to the API server, and waits until it serves
// Fairlead's kinds.
func install(t *testing.T, api *cluster.API) {
	t.Helper()
	apply(t, api, string(readFile(t, "..", "manifests", "fairlead.yaml")))
	api.Kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
}

// A real API server takes all that the chart makes: the committed manifests, and
// what other values make of them.
func TestAPIServerTakesManifests(t *testing.T) {
	t.Parallel()
	api := cluster.StartAPI(t)
	install(t, api)
	text, err := template(t, full, "--set", "metrics.podMonitor.enabled=false") // the operator's kind isn't there
	if err != nil {
		t.Fatal(err)
	}
	apply(t, api, text)
}
