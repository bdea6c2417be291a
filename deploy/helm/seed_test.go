// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/cluster"
)

// A release's upgrade keeps the hash seed that the controller has written, and takes those of the
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
