// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
)

// Errors of a policy name the field.
func TestBadPolicies(t *testing.T) {
	kinds, err := testKinds()
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
		"loadBalancers: {segments: [{type: vxlan, first: 7, announce: [10.1.0.0/16]}]}":                  "loadBalancers.segments[0].announce: Invalid value: only addresses in a vlan",
		"loadBalancers: {segments: [{type: vlan, first: 7, announce: [10.1.0.0/16]}]}":                   "loadBalancers.segments[0].announce: not here: ",
		"dataPlane: {minHealthCheckInterval: 1ms}":                                                       "dataPlane.minHealthCheckInterval: ",
		"dataPlane: {limits: {newFlows: -1}}":                                                            "dataPlane.limits.newFlows: ",
		" \n":                                                                                            "empty",
		"dataPlane: {forward: nat}":                                                                      `unknown field "forward"`,
	} {
		if _, err := parsePolicy([]byte(text), kinds); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"{}", guidePolicy(t), strings.Replace(external, "%s", `, projects: ["*"]`, 1)} {
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

// Nodes get only the parts of load balancers that the policy accepts, with the policy's limits.
func TestServed(t *testing.T) {
	kinds, err := testKinds()
	if err != nil {
		t.Fatal(err)
	}
	p, err := parsePolicy([]byte(`
addressPools: [{name: a, addresses: [203.0.113.0/24]}]
loadBalancers: {memberNetworks: [10.0.0.0/8, 203.0.113.0/24]}
dataPlane: {minHealthCheckInterval: 1s, limits: {newFlows: 100, newFlowsPerSource: 10}}
`), kinds)
	if err != nil {
		t.Fatal(err)
	}
	fast, slow := &metav1.Duration{Duration: 100 * time.Millisecond}, &metav1.Duration{Duration: time.Minute}
	b := &v1alpha1.LoadBalancer{Spec: v1alpha1.LoadBalancerSpec{
		Forward: "l2dsr",
		Listeners: []v1alpha1.Listener{
			{Name: "a", Port: 80, Pool: "p", ListenerOptions: v1alpha1.ListenerOptions{Limits: v1alpha1.FlowLimits{NewFlows: 5}}},
			{Name: "b", Port: 81, Pool: "q"}, // l2dsr doesn't translate ports
			{Name: "c", Pool: "q"},           // without a port
		},
		Pools: []v1alpha1.Pool{
			{Name: "p", HealthCheck: &v1alpha1.HealthCheck{Type: "tcp", Interval: fast}, Members: []v1alpha1.Member{
				{Address: "10.0.0.1", Port: 80}, {Address: "192.0.2.1", Port: 80}, {Address: "203.0.113.5", Port: 80}, {Address: "10.0.0.2", Port: 80, MemberOptions: v1alpha1.MemberOptions{MAC: "02:00:00:00:00:01"}},
			}},
			{Name: "q", HealthCheck: &v1alpha1.HealthCheck{Type: "tcp", Interval: slow}, Members: []v1alpha1.Member{{Address: "10.0.0.3", Port: 80}}},
		},
	}}
	address := netip.MustParseAddr("203.0.113.1")
	p.decide(b, address, nil, "", spec.Refusal{})
	whole := b.DeepCopy()
	var got strings.Builder
	served := p.served(b)
	for _, l := range served.Spec.Listeners {
		fmt.Fprintln(&got, l.Name, l.Limits.NewFlows, l.Limits.NewFlowsPerSource)
	}
	for _, pool := range served.Spec.Pools {
		fmt.Fprint(&got, pool.Name, " ", pool.HealthCheck.Interval.Duration)
		for _, m := range pool.Members {
			fmt.Fprint(&got, " ", memberName(&m))
		}
		fmt.Fprintln(&got)
	}
	if want := "a 5 10\nb 100 10\np 1s 10.0.0.1:80\nq 1m0s\n"; got.String() != want {
		t.Errorf("got\n%swant\n%s", &got, want)
	}
	if !reflect.DeepEqual(b, whole) {
		t.Error("the load balancer itself was changed")
	}
	p.decide(b, address, nil, "", spec.Refusal{Reason: "QuotaExceeded", Message: "too many"})
	if served := p.served(b); len(served.Spec.Listeners) > 0 {
		t.Errorf("a load balancer beyond the quota: %+v", served.Spec.Listeners)
	}
}

// The policy of the guide can be read.
func TestPolicyOfGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/guides/api.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(addressPools:.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("no policy")
	}
	kinds, err := loadKinds()
	if err != nil {
		t.Fatal(err)
	}
	if p, err := parsePolicy(block[1], kinds); err != nil || p.marks != 0xff000000 {
		t.Errorf("%+v, %v", p, err)
	}
}
