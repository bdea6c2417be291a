// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/cluster"
)

// pool are values with one pool, and nothing else.
const pool = "addressPools: [{name: public, addresses: [203.0.113.0/24]}]\n"

// One pool suffices for Services to be served: a group of all nodes comes with it, unless the
// values have groups or don't want it.
func TestDefaultGroup(t *testing.T) {
	for values, want := range map[string][]string{
		"{}":                         nil,
		pool:                         {"LoadBalancerGroup/default"},
		pool + "defaultGroup: false": nil,
		pool + "groups: [{name: front, nodeSelector: {}}]": {"LoadBalancerGroup/front"},
	} {
		var got []string
		for name, o := range rendered(t, values) {
			if o.Kind == "LoadBalancerGroup" {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: groups %q, want %q", values, got, want)
		}
	}
}

// TestAPIServerTakesDefaultGroup applies it to the oldest Kubernetes that the API server of the
// tests emulates. It also knows the kinds by their short names.
func TestAPIServerTakesDefaultGroup(t *testing.T) {
	t.Parallel()
	const oldest = "1.33"
	api := cluster.StartAPI(t, "--emulated-version="+oldest, "--min-compatibility-version="+oldest)
	install(t, api)
	text, err := template(t, pool)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, api, text)
	const want = "default 3 {}"
	if got := api.Kubectl(t, "get", "lbg", "-o", "jsonpath={range .items[*]}{.metadata.name} {.spec.size} {.spec.nodeSelector}{end}"); strings.TrimSpace(got) != want {
		t.Errorf("groups %q, want %q", got, want)
	}
	for _, name := range []string{"fpool", "lbg", "flb", "fpeer"} {
		api.Kubectl(t, "get", name)
	}
}

// Controllers may connect to the API server's port, also if its host isn't in the values.
func TestPortsOfAPIServer(t *testing.T) {
	for values, want := range map[string][]uint64{
		"{}":                                     {443, 6443},
		"kubernetes: {apiServer: {port: 16443}}": {443, 6443, 16443},
	} {
		egress := rendered(t, values)["NetworkPolicy/fairlead-controller"].Spec["egress"].([]any)
		var got []uint64
		for _, port := range egress[0].(map[string]any)["ports"].([]any) {
			got = append(got, port.(map[string]any)["port"].(uint64))
		}
		if !slices.Equal(got, want) || len(egress) != 1 {
			t.Errorf("%s: %d rules, ports %d, want %d", values, len(egress), got, want)
		}
	}
}
