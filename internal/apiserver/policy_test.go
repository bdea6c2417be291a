// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"os"
	"strings"
	"testing"
)

// Errors of a policy name the field.
func TestBadPolicies(t *testing.T) {
	kinds, err := loadKinds()
	if err != nil {
		t.Fatal(err)
	}
	const external = "addressPools: [{name: a, addresses: [203.0.113.0/24], external: true%s}]"
	for text, want := range map[string]string{
		"addressPools: [":                                        "yaml",
		"addressPool: []":                                        `unknown field "addressPool"`,
		"addressPools: [{name: a, pool: b}]":                     `unknown field "pool"`,
		"addressPools: [{name: a}]":                              "addressPools[0].addresses: ",
		"addressPools: [{name: A, addresses: [203.0.113.0/24]}]": "addressPools[0].name: ",
		"addressPools: [{name: a, addresses: [203.0.113.0/24]}, {name: a, addresses: [203.0.113.1/32]}]": "addressPools[1].name: a is there twice",
		"addressPools: [{name: a, addresses: [203.0.113.0/24, 203.0.113.1/24]}]":                         "addressPools[0].addresses[1]: ",
		"addressPools: [{name: a, addresses: [203.0.113.9-203.0.113.1]}]":                                "addressPools[0].addresses: range",
		"addressPools: [{name: a, addresses: [203.0.113.0/24], projects: [A]}]":                          "addressPools[0].projects[0]: ",
		strings.Replace(external, "%s", "", 1):                                                           "addressPools[0].projects: an external pool",
		"loadBalancers: {memberNetworks: [10.0.0.1/8]}":                                                  "loadBalancers.memberNetworks[0]: ",
		"loadBalancers: {segments: [{type: vlan, first: 7, last: 5}]}":                                   "loadBalancers.segments[0].last: ",
		"dataPlane: {minHealthCheckInterval: 1ms}":                                                       "dataPlane.minHealthCheckInterval: ",
		"dataPlane: {limits: {newFlows: -1}}":                                                            "dataPlane.limits.newFlows: ",
		"dataPlane: {forward: nat}":                                                                      `unknown field "forward"`,
	} {
		if _, err := parsePolicy([]byte(text), kinds); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"", "{}", guidePolicy(t), strings.Replace(external, "%s", `, projects: ["*"]`, 1)} {
		if _, err := parsePolicy([]byte(text), kinds); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// guidePolicy is the policy in the guide.
func guidePolicy(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/guides/api.md")
	if err != nil {
		t.Fatal(err)
	}
	const first = "addressPools:\n"
	_, after, found := strings.Cut(string(text), "```yaml\n"+first)
	block, _, ended := strings.Cut(after, "```")
	if !found || !ended {
		t.Fatal("the guide has no policy")
	}
	return first + block
}
