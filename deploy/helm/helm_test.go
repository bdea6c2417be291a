// SPDX-License-Identifier: Apache-2.0

// Package helm_test checks the chart: that it renders, that values match their schema
// and docs/reference/helm.md, and that its objects are valid. test/e2e/kubernetes
// installs it.
package helm_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
)

//go:generate go test -run "Reference|Kinds" -update

const (
	chart     = "fairlead"
	namespace = "fairlead-system"
	// kubeVersion is the Kubernetes that charts are rendered for.
	kubeVersion = "1.36.0"
)

// toolPath returns the path of a command of tools/helm/go.mod, which Go builds first.
func toolPath(name string) (string, error) {
	path, err := exec.Command("go", "tool", "-n", "-modfile=../../tools/helm/go.mod", name).Output()
	return strings.TrimSpace(string(path)), err
}

// Running Go takes ten times as long as rendering the chart.
var (
	helmPath        = sync.OnceValues(func() (string, error) { return toolPath("helm") })
	kubeconformPath = sync.OnceValues(func() (string, error) { return toolPath("kubeconform") })
)

// tool returns a command of helm or kubeconform.
func tool(t *testing.T, path func() (string, error), args ...string) *exec.Cmd {
	t.Helper()
	name, err := path()
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), name, args...)
}

// template renders the chart with values in YAML. The error has the output of helm.
func template(t *testing.T, values string, args ...string) (string, error) {
	t.Helper()
	cmd := tool(t, helmPath, append([]string{
		"template", "fairlead", chart, "--namespace", namespace, "--kube-version", kubeVersion, "--values", "-",
	}, args...)...)
	cmd.Stdin = strings.NewReader(values)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm template: %w\n%s", err, said.String())
	}
	return out.String(), nil
}

// object is an object of Kubernetes.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Spec     map[string]any
	Rules    []rule
	// Subjects are those of a binding.
	Subjects []struct{ Kind, Name string }
}

// rule is one of a Role or a ClusterRole.
type rule struct {
	Groups    []string `yaml:"apiGroups"`
	Resources []string
	Names     []string `yaml:"resourceNames"`
	Verbs     []string
}

// objects are the objects of a rendered chart, by "Kind/name".
func objects(t *testing.T, rendered string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for text := range strings.SplitSeq("\n"+rendered, "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if o.Kind == "" {
			continue
		}
		name := o.Kind + "/" + o.Metadata.Name
		if _, twice := all[name]; twice {
			t.Errorf("%s is rendered twice", name)
		}
		all[name] = o
	}
	return all
}

// rendered returns the objects of the chart with these values.
func rendered(t *testing.T, values string) map[string]object {
	t.Helper()
	text, err := template(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, text)
}

func readFile(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// full are values that use all options of the chart.
const full = `
image: {repository: registry.example:5000/team/fairlead, tag: v9, pullSecrets: [registry]}
kubernetes: {apiServer: {host: api.example, port: 8443}}
bgp:
  asn: 65021
  peers:
    - {name: leaf, address: 192.0.2.1, asn: 65000, holdTime: 9s, bfd: {interval: 100ms}, passwordSecretRef: {name: bgp}}
    - {name: leaf6, address: "2001:db8::1", asn: 65000, nodeSelector: {matchLabels: {rack: a}}}
addressPools:
  - name: default
    addresses: [198.51.100.0/24, "2001:db8:1::10-2001:db8:1::1f"]
    announce: {aggregate: true, communities: ["65021:1"]}
groups:
  - name: front
    size: 2
    nodeSelector: {matchExpressions: [{key: fairlead.io/balancer, operator: Exists}]}
    dataPlane: {forward: nat, healthCheck: {type: tcp, interval: 1s}}
metrics: {secure: true, podMonitor: {enabled: true, labels: {release: prometheus}}, prometheusRule: {enabled: true, labels: {release: prometheus}}, dashboard: {enabled: true}}
agent:
  interfaces: [eth0, eth1]
  nodeSelector: {fairlead.io/balancer: ""}
  extraCapabilities: [NET_RAW]
  listen: {address: "::"}
  drainTimeoutSeconds: 60
  dataplane: {kind: ipvs, filterPods: true}
  modprobe: {image: "registry.example:5000/kmod:1", modules: [ip_vs, ip_vs_mh]}
  resources: {limits: {memory: 1Gi}}
controller:
  replicas: 3
  tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}]
apiServer: {enabled: true, tlsSecret: tls, tokensSecret: tokens, clientCASecret: ca, projects: [web], serviceType: LoadBalancer}
`

func TestLint(t *testing.T) {
	for name, values := range map[string]string{"defaults": "{}", "everything": full} {
		cmd := tool(t, helmPath, "lint", "--strict", "--kube-version", kubeVersion, "--values", "-", chart)
		cmd.Stdin = strings.NewReader(values)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, said)
		}
	}
}
