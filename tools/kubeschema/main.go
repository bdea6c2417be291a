// SPDX-License-Identifier: Apache-2.0

// Command kubeschema writes JSON schemas for kubeconform: of all kinds of the
// Kubernetes that tests run (the version of test/kubeall/go.mod), and of Fairlead's
// own.
//
//	go -C tools run ./kubeschema DIR
//	kubeconform -schema-location 'DIR/{{.ResourceKind}}{{.KindSuffix}}.json' FILE
//
// They take no unknown fields. The kinds of Kubernetes come from the OpenAPI
// document in its module, as the usual collections of such schemas do.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

const (
	kubernetes = "k8s.io/kubernetes"
	crds       = "../deploy/helm/fairlead/crds/*.yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kubeschema DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "kubeschema:", err)
		os.Exit(1)
	}
}

// run writes a file for each kind into dir.
func run(dir string) error {
	module, err := moduleDir()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(module, "api/openapi-spec/swagger.json"))
	if err != nil {
		return err
	}
	schemas, err := ofOpenAPI(text)
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(crds)
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("%s: %d files: %w", crds, len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var d definition
		if err := yaml.Unmarshal(text, &d); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		d.add(schemas)
	}
	return write(dir, schemas)
}

// moduleDir is where Go keeps the module of Kubernetes, which it fetches first.
func moduleDir() (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", kubernetes)
	cmd.Dir, cmd.Stderr = "../test/kubeall", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", kubernetes, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", fmt.Errorf("%s: %w", kubernetes, err)
	}
	return module.Dir, nil
}

func write(dir string, schemas map[string]schema) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, s := range schemas {
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fileName is how kubeconform names a kind: {{.ResourceKind}}{{.KindSuffix}}.
func fileName(group, version, kind string) string {
	name := strings.ToLower(kind)
	if group != "" {
		first, _, _ := strings.Cut(group, ".")
		name += "-" + first
	}
	return name + "-" + version
}
