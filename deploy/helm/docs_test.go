// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"fairlead.io/fairlead/test/golden"
)

// documented is a value of values.yaml: its path, and the comment above it.
type documented struct {
	path, value, says string
}

// document reads values.yaml line by line, since YAML parsers drop comments.
func document(t *testing.T, text string) []documented {
	t.Helper()
	var all []documented
	var says, above []string // above are the keys of the mappings around a line
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if comment, ok := strings.CutPrefix(trimmed, "#"); ok {
			says = append(says, strings.TrimSpace(comment))
			continue
		}
		key, value, ok := strings.Cut(trimmed, ":")
		if ok && !strings.HasPrefix(trimmed, "- ") {
			depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
			above = append(above[:depth], key)
			all = append(all, documented{strings.Join(above, "."), strings.TrimSpace(value), strings.Join(says, " ")})
		}
		says = nil
	}
	return all
}

// row is the row of the value in the table. A mapping has none.
func (d documented) row(t *testing.T, values map[string]any) string {
	t.Helper()
	value := lookUp(t, values, d.path)
	shown, err := yaml.MarshalWithOptions(value, yaml.Flow(true), yaml.JSON())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("| `%s` | `%s` | %s |\n", d.path, strings.TrimSpace(string(shown)), d.says)
}

func lookUp(t *testing.T, values map[string]any, path string) any {
	t.Helper()
	var value any = values
	for key := range strings.SplitSeq(path, ".") {
		inner, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("values.yaml: %s is within no mapping", path)
		}
		value = inner[key]
	}
	return value
}

// TestValuesReference compares docs/reference/helm.md with the comments of
// values.yaml.
func TestValuesReference(t *testing.T) {
	values := defaults(t)
	all := document(t, string(readFile(t, chart, "values.yaml")))
	var rows strings.Builder
	rows.WriteString("| value | default | what it is |\n| --- | --- | --- |\n")
	for i, d := range all {
		holdsOthers := i+1 < len(all) && strings.HasPrefix(all[i+1].path, d.path+".")
		user := slices.Contains(free, "/"+strings.ReplaceAll(d.path, ".", "/")) || strings.Contains(d.path, "resources.requests")
		switch {
		case d.says != "":
			rows.WriteString(d.row(t, values))
		case !holdsOthers && !user:
			t.Errorf("values.yaml: no comment stands above %s", d.path)
		}
	}
	golden.Parts(t, "../../docs/reference/helm.md", "<!-- made of deploy/helm/fairlead/values.yaml by go test ./deploy/helm -update -->\n", rows.String())
}

// The values of the guide to the API for clouds run it, and balancers in a cluster of their own.
func TestValuesOfTheAPIGuide(t *testing.T) {
	guide := string(readFile(t, "..", "..", "docs", "guides", "api.md"))
	for first, want := range map[string]string{
		"":                 "Deployment/fairlead-apiserver",
		"# balancers.yaml": "DaemonSet/fairlead-agent",
		"# control.yaml":   "LoadBalancerGroup/a",
	} {
		_, block, found := strings.Cut(guide, "```yaml\n"+first)
		values, _, ended := strings.Cut(block, "```")
		if !found || !ended {
			t.Fatalf("docs/guides/api.md has no values %s", first)
		}
		if all := rendered(t, values); all[want].Kind == "" {
			t.Errorf("values %s: no %s among %q", first, want, slices.Sorted(maps.Keys(all)))
		}
	}
}
