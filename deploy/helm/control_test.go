// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"slices"
	"strings"
	"testing"
)

// Values of the releases in a control cluster and in the cluster of its balancers.
const (
	controlValues = "{controller: {nodesKubeconfigSecret: nodes}, bgp: {asn: 65021, passwordSecrets: [bgp]}, " +
		"addressPools: [{name: main, addresses: [192.0.2.0/24]}], metrics: {secure: true, podMonitor: {enabled: true}}}"
	agentsValues = `{agent: {controlKubeconfigFolder: /etc/fairlead-control, listen: {address: "::"}}, bgp: {asn: 65021}, ` +
		"metrics: {secure: true, podMonitor: {enabled: true}}}"
)

// A control cluster has all but agents, the cluster of its balancers the agents and an account for the
// controllers.
func TestControlCluster(t *testing.T) {
	control, agents := rendered(t, controlValues), rendered(t, agentsValues)
	for _, name := range []string{
		"Deployment/fairlead-controller", "PodDisruptionBudget/fairlead-controller", "NetworkPolicy/fairlead-controller",
		"Secret/" + seedSecret, "AddressPool/main", "LoadBalancerGroup/default",
		"ValidatingAdmissionPolicy/fairlead-agent", "ValidatingAdmissionPolicyBinding/fairlead-agent", "PodMonitor/fairlead-controller",
	} {
		if control[name].Kind == "" || agents[name].Kind != "" {
			t.Errorf("%s: want it in the control cluster only", name)
		}
	}
	for _, name := range []string{"DaemonSet/fairlead-agent", "ConfigMap/fairlead-agent", "ServiceAccount/fairlead-agent", "PodMonitor/fairlead-agent"} {
		if agents[name].Kind == "" || control[name].Kind != "" {
			t.Errorf("%s: want it in the balancers' cluster only", name)
		}
	}
	controller, agent := containerOf(t, control["Deployment/fairlead-controller"]), containerOf(t, agents["DaemonSet/fairlead-agent"])
	for flag, args := range map[string][]string{
		"--nodes-kubeconfig=/etc/fairlead-nodes/kubeconfig":     controller.args,
		"--control-kubeconfig=/etc/fairlead-control/kubeconfig": agent.args,
	} {
		if !slices.Contains(args, flag) {
			t.Errorf("arguments %q, want %s among them", args, flag)
		}
	}
}

// Agents and controllers have the same rights with two clusters as with one, each where it needs it,
// but for what only Services need; controllers delete the reports whose Nodes are in the other cluster.
func TestRightsOfTwoClusters(t *testing.T) {
	const group = "fairlead:agents"
	one := allowed(t, rendered(t, "{bgp: {passwordSecrets: [bgp]}, metrics: {secure: true}}"))
	control, agents := allowed(t, rendered(t, controlValues)), allowed(t, rendered(t, agentsValues))
	two := map[access]bool{}
	for a := range control {
		if a.account == group {
			a.account = "fairlead-agent"
		}
		two[a] = true
	}
	for a := range agents {
		if two[a] && a.resource != "services" && !strings.HasSuffix(a.resource, "reviews") {
			t.Errorf("%s: in both clusters", a)
		}
		two[a] = true
	}
	for _, verb := range []string{"list", "watch"} {
		for group, resource := range map[string]string{"discovery.k8s.io": "endpointslices", "networking.k8s.io": "networkpolicies"} {
			delete(one, access{"fairlead-agent", "", group, resource, verb, ""})
		}
	}
	for _, resource := range []string{"balancernodes", "balancernodestatistics"} {
		one[access{"fairlead-controller", "", "fairlead.io", resource, "delete", ""}] = true
	}
	for a := range one {
		if !two[a] {
			t.Errorf("%s: in neither of two clusters", a)
		}
	}
	for a := range two {
		if !one[a] {
			t.Errorf("%s: not in one cluster", a)
		}
		if agents[a] && !slices.Contains([]string{"get", "list", "watch"}, a.verb) && !strings.HasSuffix(a.resource, "reviews") {
			t.Errorf("%s: the controllers and agents write nothing in the balancers' cluster", a)
		}
	}
	for a := range control {
		if a.account == "fairlead-agent" {
			t.Errorf("%s: in a control cluster agents are the group %s", a, group)
		}
	}
}

// What belongs to the other cluster is refused, by the name of the value.
func TestValuesOfTheOtherCluster(t *testing.T) {
	for values, want := range map[string]string{
		"controller: {nodesKubeconfigSecret: nodes}":                        "controller.nodesKubeconfigSecret, agent.controlKubeconfigFolder",
		"addressPools: [{name: main, addresses: [192.0.2.0/24]}]":           "addressPools: with agent.controlKubeconfigFolder",
		"groups: [{name: main, nodeSelector: {}}]":                          "groups: with agent.controlKubeconfigFolder",
		"bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 65000}]}": "bgp.peers: with agent.controlKubeconfigFolder",
		"bgp: {passwordSecrets: [a]}":                                       "bgp.passwordSecrets: with agent.controlKubeconfigFolder",
		"apiServer: {enabled: true, tlsSecret: a, tokensSecret: b}":         "apiServer.enabled: with agent.controlKubeconfigFolder",
		"agent: {dataplane: {hashSeed: 0}}":                                 "agent.dataplane.hashSeed: with agent.controlKubeconfigFolder",
		"agent: {controlKubeconfigFolder: etc}":                             "controlKubeconfigFolder",
		"agent: {controlKubeconfigFolder: /etc/../root}":                    "controlKubeconfigFolder",
	} {
		var flags []string
		if !strings.Contains(values, "controlKubeconfigFolder") {
			flags = []string{"--set", "agent.controlKubeconfigFolder=/etc/fairlead-control"}
		}
		if _, err := template(t, values, flags...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", values, err, want)
		}
	}
}
