// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
	text, err := template(t, readValues(t, "everything"), "--set", "metrics.podMonitor.enabled=false,metrics.prometheusRule.enabled=false") // the operator's kinds aren't there
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"p-web", "shop"} {
		api.Kubectl(t, "create", "namespace", namespace)
	}
	apply(t, api, text)
}

// TestAPIServerTakesDefaultGroup applies the group that comes with a pool to the oldest Kubernetes
// that the API server of the tests emulates. It also knows the kinds by their short names.
func TestAPIServerTakesDefaultGroup(t *testing.T) {
	t.Parallel()
	const oldest = "1.33"
	api := cluster.StartAPI(t, "--emulated-version="+oldest, "--min-compatibility-version="+oldest)
	install(t, api)
	text, err := template(t, "addressPools: [{name: public, addresses: [203.0.113.0/24]}]")
	if err != nil {
		t.Fatal(err)
	}
	apply(t, api, text)
	const want = "default 3 {}"
	got := api.Kubectl(t, "get", "lbg", "-o", "jsonpath={range .items[*]}{.metadata.name} {.spec.size} {.spec.nodeSelector}{end}")
	if strings.TrimSpace(got) != want {
		t.Errorf("groups %q, want %q", got, want)
	}
	for _, name := range []string{"fpool", "lbg", "flb", "fpeer"} {
		api.Kubectl(t, "get", name)
	}
}

// A release's upgrade keeps the hash seed that the controller has written, and takes seeds of the
// values.
func TestAPIServerUpgradeKeepsHashSeed(t *testing.T) {
	t.Parallel()
	api := cluster.StartAPI(t)
	kubeconfig := api.Kubeconfig(t, api.Config())
	upgrade := func(args ...string) {
		t.Helper()
		cmd := tool(t, helmPath, slices.Concat([]string{
			"upgrade", "--install", "fairlead", chart, "--namespace", namespace, "--create-namespace", "--kubeconfig", kubeconfig,
		}, args)...)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
	}
	seed := func(want string) {
		t.Helper()
		got := api.Kubectl(t, "--namespace", namespace, "get", "secret", seedSecret, "-o", "jsonpath={.data.seed}")
		if strings.TrimSpace(got) != want {
			t.Errorf("seed %q, want %q", got, want)
		}
	}
	upgrade()
	seed("")
	api.Kubectl(t, "--namespace", namespace, "patch", "secret", seedSecret, "--type=merge", "--patch", `{"data": {"seed": "MTI="}}`)
	upgrade("--set", "logFormat=text")
	seed("MTI=")
	upgrade("--set", "agent.dataplane.hashSeed=7")
	seed("Nw==")
	upgrade("--set", "agent.dataplane.hashSeed=null")
	seed("") // the controller makes another
}
