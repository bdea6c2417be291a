// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/test/golden"
)

// valueFiles are the files of testdata/values. Together they reach each branch of the templates.
var valueFiles = []string{"defaults", "everything", "bare", "control", "balancers"}

func readValues(t *testing.T, name string) string {
	t.Helper()
	return string(readFile(t, "testdata", "values", name+".yaml"))
}

// The chart's objects equal testdata/rendered, conform to the schemas of the API server and of
// Fairlead's kinds, and agents accept their file. Helm's linter has no objection.
func TestRendered(t *testing.T) {
	schemas := schemas(t)
	for _, name := range valueFiles {
		t.Run(name, func(t *testing.T) {
			values := readValues(t, name)
			text, err := template(t, values, "--include-crds")
			if err != nil {
				t.Fatal(err)
			}
			golden.File(t, filepath.Join("testdata", "rendered", name+".yaml"), shortened(t, text))
			file := objects(t, text)["ConfigMap/fairlead-agent"].Data["fairlead.yaml"]
			if _, err := config.ParseKubernetes(name, file); err != nil && name != "control" {
				t.Errorf("%v in\n%s", err, file)
			}
			if said, err := conform(t, schemas, text); err != nil {
				t.Errorf("%v\n%s", err, said)
			}
			lint := tool(t, helmPath, "lint", "--strict", "--kube-version", kubeVersion, "--values", "-", chart)
			lint.Stdin = strings.NewReader(values)
			if said, err := lint.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}

// shortened is a rendered chart without definitions, comments and names of templates. Two files that
// objects have whole, and the labels of all objects, are in it by name.
func shortened(t *testing.T, text string) string {
	t.Helper()
	for name, indent := range map[string]string{"alerts.yaml": "\n  ", "dashboard.json": "\n    "} {
		text = strings.ReplaceAll(text, indent+indented(string(readFile(t, chart, "files", name)), indent), indent+"(files/"+name+")")
	}
	var out strings.Builder
	for document := range strings.SplitSeq(text, "---\n") {
		if !strings.Contains(document, "\nkind: ") || strings.Contains(document, "\nkind: CustomResourceDefinition\n") {
			continue
		}
		out.WriteString("---\n")
		for line := range strings.Lines(document) {
			if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
				out.WriteString(line)
			}
		}
	}
	text = out.String()
	var about struct {
		Version    string
		AppVersion string `yaml:"appVersion"`
	}
	if err := yaml.Unmarshal(readFile(t, chart, "Chart.yaml"), &about); err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "image: localhost/fairlead:"+about.AppVersion+"\n", "image: localhost/fairlead:VERSION\n")
	for _, component := range []string{"agent", "controller", "apiserver", "configuration", "monitoring"} {
		selector := "app.kubernetes.io/name: fairlead\napp.kubernetes.io/instance: fairlead\napp.kubernetes.io/component: " + component
		labels := selector + "\napp.kubernetes.io/version: \"" + about.AppVersion + "\"\n" +
			"app.kubernetes.io/managed-by: Helm\nhelm.sh/chart: fairlead-" + about.Version
		text = strings.ReplaceAll(text, indented(labels, "\n    "), "# labels of "+component)
		for spaces := range 24 {
			text = strings.ReplaceAll(text, indented(selector, "\n"+strings.Repeat(" ", spaces)), "# selector of "+component)
		}
	}
	return text
}

// indented is a text with other ends of lines.
func indented(text, end string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", end) }

// schemas writes JSON schemas of all kinds into a directory, and returns their
// location for kubeconform.
func schemas(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "-C", "tools", "run", "./kubeschema", dir)
	cmd.Dir = "../.."
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubeschema: %v\n%s", err, said)
	}
	return filepath.Join(dir, "{{.ResourceKind}}{{.KindSuffix}}.json")
}

// conform returns kubeconform's report on objects. The kinds of the Prometheus
// operator have no schema here.
func conform(t *testing.T, schemas, objects string) (string, error) {
	t.Helper()
	cmd := tool(t, kubeconformPath, "-strict", "-summary", "-skip", "PodMonitor,PrometheusRule", "-schema-location", schemas)
	cmd.Stdin = strings.NewReader(objects)
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// Errors are found in objects of Kubernetes and of Fairlead, at any depth.
func TestConformRefuses(t *testing.T) {
	schemas := schemas(t)
	for _, c := range []struct{ object, want string }{
		{"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spc: {}}", "'spc'"},
		{"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, securityContext: {capabilities: {drp: [ALL]}}}]}}", "'drp'"},
		{"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a}, spec: {maxUnavailable: []}}", "maxUnavailable"},
		{"{apiVersion: fairlead.io/v1alpha1, kind: AddressPool, metadata: {name: a}, spec: {addresses: [192.0.2.0/24], autoAsign: true}}", "'autoAsign'"},
		{"{apiVersion: fairlead.io/v1alpha1, kind: LoadBalancerGroup, metadata: {name: a}, spec: {size: many, nodeSelector: {}}}", "size"},
		{"{apiVersion: fairlead.io/v1, kind: AddressPool, metadata: {name: a}}", "could not find schema"},
	} {
		if said, err := conform(t, schemas, c.object); err == nil || !strings.Contains(said, c.want) {
			t.Errorf("%s: want %s, kubeconform says (%v)\n%s", c.object, c.want, err, said)
		}
	}
}

// Agents and controllers have the same rights with two clusters as with one, each where it needs it,
// except for rights that only Services need; controllers delete the reports whose Nodes are in the
// other cluster.
func TestRightsOfTwoClusters(t *testing.T) {
	one := allowed(t, rendered(t, "{bgp: {passwordSecrets: [bgp]}, metrics: {secure: true}}"))
	agents := allowed(t, rendered(t, "{agent: {controlKubeconfigFolder: /etc/control}, metrics: {secure: true}}"))
	two := map[access]bool{}
	for a := range allowed(t, rendered(t, "{controller: {nodesKubeconfigSecret: nodes}, bgp: {passwordSecrets: [bgp]}, metrics: {secure: true}}")) {
		switch a.account {
		case "fairlead-agent":
			t.Errorf("%s: in a control cluster agents are a group", a)
		case "fairlead:agents":
			a.account = "fairlead-agent"
		}
		two[a] = true
	}
	for a := range agents {
		review := strings.HasSuffix(a.resource, "reviews")
		if two[a] && a.resource != "services" && !review {
			t.Errorf("%s: in both clusters", a)
		}
		if !review && !slices.Contains([]string{"get", "list", "watch"}, a.verb) {
			t.Errorf("%s: controllers and agents write nothing in the balancers' cluster", a)
		}
		two[a] = true
	}
	for _, verb := range []string{"list", "watch"} {
		delete(one, access{"fairlead-agent", "", "discovery.k8s.io", "endpointslices", verb, ""})
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
	}
}
