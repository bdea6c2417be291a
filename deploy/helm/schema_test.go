// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// free are the values with keys or elements of the user.
var free = []string{
	"/addressPools", "/groups", "/bgp/peers", "/bgp/passwordSecrets", "/image/pullSecrets", "/metrics/podMonitor/labels", "/metrics/prometheusRule/labels", "/metrics/dashboard/labels",
	"/agent/nodeSelector", "/agent/tolerations", "/agent/interfaces", "/agent/extraCapabilities", "/agent/modprobe/modules", "/agent/resources/requests",
	"/controller/nodeSelector", "/controller/tolerations", "/controller/resources/requests",
	"/apiServer/projects", "/apiServer/nodeSelector", "/apiServer/tolerations", "/apiServer/resources/requests",
}

// defaults are those of values.yaml.
func defaults(t *testing.T) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal(readFile(t, chart, "values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// A misspelt value is rejected, with its name.
func TestMisspeltValues(t *testing.T) {
	var places []string
	var misspell func(path string, values map[string]any) map[string]any
	misspell = func(path string, values map[string]any) map[string]any {
		wrong := map[string]any{}
		for key, value := range values {
			places = append(places, fmt.Sprintf("at '%s': ", path)+"additional properties")
			wrong[key+"x"] = true
			if inner, ok := value.(map[string]any); ok && !slices.Contains(free, path+"/"+key) {
				wrong[key] = misspell(path+"/"+key, inner)
			}
		}
		return wrong
	}
	wrong := misspell("", defaults(t))
	said := refused(t, wrong)
	for _, place := range places {
		if !strings.Contains(said, place) {
			t.Errorf("nothing is said of %q", place)
		}
	}
	for key := range keys(wrong) {
		if strings.HasSuffix(key, "x") && !strings.Contains(said, "'"+key+"'") {
			t.Errorf("%s is not refused", key)
		}
	}
	if t.Failed() {
		t.Log(said)
	}
}

// keys returns all keys of values, at any depth.
func keys(values map[string]any) map[string]bool {
	all := map[string]bool{}
	for key, value := range values {
		all[key] = true
		if inner, ok := value.(map[string]any); ok {
			maps.Copy(all, keys(inner))
		}
	}
	return all
}

// A value of a wrong type is rejected, with its name.
func TestMistypedValues(t *testing.T) {
	var places []string
	var mistype func(path string, value any) any
	mistype = func(path string, value any) any {
		inner, isMap := value.(map[string]any)
		if isMap && !slices.Contains(free, path) {
			wrong := map[string]any{}
			for key, value := range inner {
				wrong[key] = mistype(path+"/"+key, value)
			}
			return wrong
		}
		places = append(places, fmt.Sprintf("at '%s': got ", path))
		if _, isText := value.(string); isText {
			return 7
		}
		return "text"
	}
	wrong, _ := mistype("", defaults(t)).(map[string]any)
	said := refused(t, wrong)
	for _, place := range places {
		if !strings.Contains(said, place) {
			t.Errorf("nothing is said of %q", place)
		}
	}
	// Mappings in place of other types are rejected too.
	for key, value := range defaults(t) {
		if _, ok := value.(map[string]any); ok {
			if want, said := fmt.Sprintf("at '/%s': got ", key), refused(t, map[string]any{key: []any{}}); !strings.Contains(said, want) {
				t.Errorf("want %q, helm says\n%s", want, said)
			}
		}
	}
	if t.Failed() {
		t.Log(said)
	}
}

// refused returns helm's error for values that it must reject.
func refused(t *testing.T, values map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = template(t, string(text)); err == nil {
		t.Fatalf("helm takes\n%s", text)
	}
	return err.Error()
}

func TestValuesOutOfRange(t *testing.T) {
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
	} {
		if _, err := template(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q, helm says: %v", c.values, c.want, err)
		}
	}
}
