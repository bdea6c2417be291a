// SPDX-License-Identifier: Apache-2.0

// Package helm_test checks the chart: that it renders, that values match their schema
// and docs/reference/helm.md, and that its objects are valid. test/e2e/kubernetes
// installs it.
package helm_test

import (
	"bytes"
	"fmt"
	"io/fs"
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

// toolPath returns the path of a command of tools/helm/go.mod, which Go builds first. It opens the
// files that commands read, so that a cached result of the tests holds for these only.
func toolPath(name string, inputs ...string) (string, error) {
	for _, root := range append(inputs, "../../tools/helm") {
		if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				_, err = os.ReadFile(path)
			}
			return err
		}); err != nil {
			return "", err
		}
	}
	path, err := exec.Command("go", "tool", "-n", "-modfile=../../tools/helm/go.mod", name).Output()
	return strings.TrimSpace(string(path)), err
}

// Running Go takes ten times as long as rendering the chart.
var (
	helmPath        = sync.OnceValues(func() (string, error) { return toolPath("helm", chart) })
	kubeconformPath = sync.OnceValues(func() (string, error) {
		return toolPath("kubeconform", "../../tools/go.mod", "../../tools/kubeschema", "../../test/kubeall/go.mod")
	})
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
	Rules    []rule
	// Subjects of a binding.
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
		if strings.HasSuffix(name, "-balancer-pods") { // in several namespaces
			name += " of " + o.Metadata.Namespace
		}
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
