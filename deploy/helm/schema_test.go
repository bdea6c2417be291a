// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// free are the values with keys or elements of the user.
var free = []string{
	"/addressPools", "/groups", "/bgp/peers", "/bgp/passwordSecrets", "/image/pullSecrets", "/metrics/podMonitor/labels", "/metrics/prometheusRule/labels", "/metrics/dashboard/labels",
	"/agent/nodeSelector", "/agent/tolerations", "/agent/interfaces", "/agent/extraCapabilities", "/agent/modprobe/modules", "/agent/resources/requests",
	"/agent/affinity", "/agent/podLabels", "/agent/podAnnotations", "/controller/affinity", "/controller/podLabels", "/controller/podAnnotations",
	"/apiServer/affinity", "/apiServer/podLabels", "/apiServer/podAnnotations",
	"/controller/nodeSelector", "/controller/tolerations", "/controller/resources/requests",
	"/apiServer/projects", "/apiServer/nodeSelector", "/apiServer/tolerations", "/apiServer/resources/requests",
}

// defaults returns the values of values.yaml.
func defaults(t *testing.T) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal(readFile(t, chart, "values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// A value that is misspelt or of a wrong type is rejected, with its name.
func TestWrongValues(t *testing.T) {
	var misspelt, mistyped []string
	var spoil func(path string, values map[string]any) (names, types map[string]any)
	spoil = func(path string, values map[string]any) (names, types map[string]any) {
		names, types = map[string]any{}, map[string]any{}
		for key, value := range values {
			names[key+"x"] = true
			misspelt = append(misspelt, fmt.Sprintf("at '%s': additional properties", path), "'"+key+"x'")
			inner, isMap := value.(map[string]any)
			if isMap && !slices.Contains(free, path+"/"+key) {
				names[key], types[key] = spoil(path+"/"+key, inner)
				continue
			}
			mistyped = append(mistyped, fmt.Sprintf("at '%s/%s': got ", path, key))
			types[key] = "text"
			if _, isText := value.(string); isText {
				types[key] = 7
			}
		}
		return names, types
	}
	names, types := spoil("", defaults(t))
	refuse(t, names, misspelt...)
	refuse(t, types, mistyped...)
	// Lists in place of mappings are rejected too.
	for key, value := range defaults(t) {
		if _, ok := value.(map[string]any); ok {
			refuse(t, map[string]any{key: []any{}}, fmt.Sprintf("at '/%s': got ", key))
		}
	}
}

// refuse has helm reject values with these texts.
func refuse(t *testing.T, values map[string]any, texts ...string) {
	t.Helper()
	written, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	_, err = template(t, string(written))
	for _, text := range texts {
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("want %q, helm says: %v", text, err)
		}
	}
}

// apart are values of a cluster with agents only.
const apart = "agent: {controlKubeconfigFolder: /etc/fairlead-control}\n"

// Values of an older release, without newer ones, render ("helm upgrade --reuse-values").
func TestMissingValues(t *testing.T) {
	const older = "nameOverride: null\nrevisionHistoryLimit: null\nagent: {modprobe: null, affinity: null, podLabels: null, podAnnotations: null}\n" +
		"controller: {affinity: null, podLabels: null, podAnnotations: null}"
	if _, err := template(t, older); err != nil {
		t.Error(err)
	}
}

func TestRefusedValues(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"logFormat: xml", "/logFormat"},
		{"image: {digest: sha256:12}", "/image/digest"},
		{"image: {tag: '-'}", "/image/tag"},
		{"image: {pullPolicy: never}", "/image/pullPolicy"},
		{"kubernetes: {apiServer: {host: https://api}}", "/kubernetes/apiServer/host"},
		{"bgp: {asn: 4294967296}", "/bgp/asn"},
		{"bgp: {shutdownDelay: 5}", "/bgp/shutdownDelay"},
		{"bgp: {peers: [{name: a, address: 192.0.2.1, asn: 1}]}", "/bgp/asn"},
		{"bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1}]}", "missing property 'asn'"},
		{"bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 2, pasive: true}]}", "'pasive'"},
		{"addressPools: [{addresses: [192.0.2.0/24]}]", "missing property 'name'"},
		{"addressPools: [{name: A, addresses: [192.0.2.0/24]}]", "/addressPools/0/name"},
		{"addressPools: [{name: a, addresses: []}]", "/addressPools/0/addresses"},
		{"addressPools: [{name: a, addresses: [192.0.2.0/24], announce: {med: -1}}]", "/addressPools/0/announce/med"},
		{"groups: [{name: a, size: 0, nodeSelector: {}}]", "/groups/0/size"},
		{"groups: [{name: a, nodeSelector: {matchLabel: {}}}]", "'matchLabel'"},
		{"groups: [{name: a, nodeSelector: {}, dataPlane: {forward: ipvs}}]", "/groups/0/dataPlane/forward"},
		{"agent: {dataplane: {kind: ebpf}}", "/agent/dataplane/kind"},
		{"agent: {modprobe: {image: A B}}", "/agent/modprobe/image"},
		{"agent: {modprobe: {modules: [/tmp/x]}}", "/agent/modprobe/modules/0"},
		{"agent: {interfaces: [a/b]}", "/agent/interfaces/0"},
		{"agent: {extraCapabilities: [SYS_ADMIN]}", "/agent/extraCapabilities/0"},
		{"agent: {listen: {address: 10.0.0.1}}", "/agent/listen/address"},
		{"agent: {drainTimeoutSeconds: 3601}", "/agent/drainTimeoutSeconds"},
		{"agent: {dataplane: {flows: 1023}}", "/agent/dataplane/flows"},
		{"agent: {nodeSelector: {a: true}}", "/agent/nodeSelector/a"},
		{"agent: {tolerations: [{key: a, operator: In}]}", "/agent/tolerations/0/operator"},
		{"agent: {resources: {requests: {cpu: 1 core}}}", "/agent/resources/requests/cpu"},
		{"controller: {replicas: 0}", "/controller/replicas"},
		{"apiServer: {projects: [../web]}", "/apiServer/projects/0"},
		{"apiServer: {enabled: true, tokensSecret: a}", "apiServer.tlsSecret"},
		{"apiServer: {enabled: true, tlsSecret: a}", "apiServer.tokensSecret"},
		{"agent: {nat: {ports: {first: 2000, last: 1999}}}", "agent.nat.ports"},
		{"bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 2, passive: true}]}", "NET_BIND_SERVICE"},
		{"metrics: {podMonitor: {enabled: true}}\nagent: {listen: {address: '::1'}}", "agent.listen.address"},
		{apart + "controller: {nodesKubeconfigSecret: nodes}", "controller.nodesKubeconfigSecret, agent.controlKubeconfigFolder"},
		{apart + "addressPools: [{name: main, addresses: [192.0.2.0/24]}]", "addressPools: with agent.controlKubeconfigFolder"},
		{apart + "groups: [{name: main, nodeSelector: {}}]", "groups: with agent.controlKubeconfigFolder"},
		{apart + "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 65000}]}", "bgp.peers: with agent.controlKubeconfigFolder"},
		{apart + "bgp: {passwordSecrets: [a]}", "bgp.passwordSecrets: with agent.controlKubeconfigFolder"},
		{apart + "apiServer: {enabled: true, tlsSecret: a, tokensSecret: b}", "apiServer.enabled: with agent.controlKubeconfigFolder"},
		{"agent: {controlKubeconfigFolder: /etc/a, dataplane: {hashSeed: 0}}", "agent.dataplane.hashSeed: with agent.controlKubeconfigFolder"},
		{"agent: {controlKubeconfigFolder: etc}", "/agent/controlKubeconfigFolder"},
		{"agent: {controlKubeconfigFolder: /etc/../root}", "/agent/controlKubeconfigFolder"},
	} {
		if _, err := template(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q, helm says: %v", c.values, c.want, err)
		}
	}
}
