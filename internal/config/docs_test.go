// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"fairlead.io/fairlead/internal/config"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// elsewhere are the pages whose blocks are not configurations of an agent, by the
// tests that try them.
var elsewhere = map[string]string{
	"api.md":            "deploy",
	"helm.md":           "deploy",
	"kubernetes.md":     "test/e2e",
	"kubernetes-api.md": "api/v1alpha1",
	"metallb.md":        "api/v1alpha1",
}

// A configuration copied from the documentation works.
func TestDocumentedConfigurations(t *testing.T) {
	root := filepath.Join("..", "..")
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"bgp.password", "node.token"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("correct-horse\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	blocks := 0
	for _, name := range append(docs, filepath.Join(root, "README.md")) {
		if elsewhere[filepath.Base(name)] != "" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range yamlBlock.FindAllSubmatch(text, -1) {
			blocks++
			if _, err := config.ParseEither(filepath.Join(dir, filepath.Base(name)), string(block[1]), dataplanetest.Limits()); err != nil {
				t.Error(err)
			}
		}
	}
	if blocks < 8 {
		t.Errorf("%d configurations in the documentation, want at least 8", blocks)
	}
}
