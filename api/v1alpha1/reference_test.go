// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/test/golden"
)

// referencePath is the page with a table of each kind's fields.
var referencePath = filepath.Join("..", "..", "docs", "reference", "kubernetes-api.md")

// shown is a table in the documentation, and its subject: "AddressPool.spec", or the
// annotations.
var shown = regexp.MustCompile(`(?s)(<!-- ([\w.]+), made by go test \./api/v1alpha1 -update -->\n).*?(<!-- end -->\n)`)

// The reference has the schema of every field, and the doc comments of the
// annotations.
func TestReference(t *testing.T) {
	text, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	current := shown.ReplaceAllStringFunc(string(text), func(block string) string {
		tables++
		part := shown.FindStringSubmatch(block)
		return part[1] + table(t, part[2]) + part[3]
	})
	golden.File(t, referencePath, current)
	want := 1 // the table of annotations
	for _, k := range allKinds() {
		for _, part := range []string{"spec", "status"} {
			if root(t, k)["properties"].(value)[part] != nil {
				want++
			}
		}
	}
	if tables != want {
		t.Errorf("%s has %d tables, want %d", referencePath, tables, want)
	}
}

// table is that about a part of a kind, or the annotations.
func table(t *testing.T, about string) string {
	kind, part, is := strings.Cut(about, ".")
	if !is {
		return annotations(t)
	}
	return fieldTable(part, root(t, kindNamed(t, kind))["properties"].(value)[part].(value))
}

// fieldTable has a row for each field below a part of an object.
func fieldTable(part string, s value) string {
	var out strings.Builder
	out.WriteString("| field | value | meaning |\n| --- | --- | --- |\n")
	required := map[string]bool{}
	for path, field := range fields(part, s) {
		names, _ := field["required"].([]any)
		for _, name := range names {
			required[fmt.Sprint(path, ".", name)] = true
		}
		name, item := strings.CutPrefix(path, part+".")
		if !item || strings.HasSuffix(path, "[]") {
			continue
		}
		kind := form(field)
		if required[path] {
			kind += ", required"
		}
		if d, ok := field["default"]; ok && part == "spec" && fmt.Sprint(d) != "map[]" {
			kind += fmt.Sprintf(", default `%v`", d)
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", name, kind, meaning(field))
	}
	return out.String()
}

// form describes the type and format of a field's value.
func form(s value) string {
	properties, _ := s["properties"].(value)
	switch {
	case properties["matchExpressions"] != nil:
		return "label selector"
	case properties["lastTransitionTime"] != nil:
		return "condition"
	case s["enum"] != nil:
		var words []string
		for _, word := range s["enum"].([]any) {
			words = append(words, fmt.Sprintf("`%v`", word))
		}
		return strings.Join(words, ", ")
	case s["type"] == "array":
		item, _, _ := strings.Cut(form(s["items"].(value)), ",")
		return "list of " + item + bounds(s["minItems"], s["maxItems"])
	case s["type"] == "string" && strings.Contains(fmt.Sprint(s["x-kubernetes-validations"]), "duration(self)"):
		rule := s["x-kubernetes-validations"].([]any)[0].(value)
		return strings.Replace(fmt.Sprint(rule["message"]), "want", "duration,", 1)
	case s["type"] == "string":
		return "string" + bounds(s["minLength"], s["maxLength"])
	}
	return fmt.Sprint(s["type"]) + bounds(s["minimum"], s["maximum"])
}

// bounds describes the range of a number, or of a length.
func bounds(low, high any) string {
	switch {
	case low == nil && high == nil:
		return ""
	case low == nil:
		return fmt.Sprintf(", up to %v", high)
	case high == nil:
		return fmt.Sprintf(", %v or more", low)
	}
	return fmt.Sprintf(", %v to %v", low, high)
}

// meaning is a field's description, followed by its items' if these have no rows themselves.
func meaning(s value) string {
	text, _ := s["description"].(string)
	items, _ := s["items"].(value)
	if description, _ := items["description"].(string); items["properties"] == nil {
		text += " " + description
	}
	return cell(text)
}

// cell is a text in one line of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// goName is the name of an annotation's constant.
var goName = regexp.MustCompile(`\bAnnotation\w+`)

// annotations has a row for each annotation, with its comment in the code.
func annotations(t *testing.T) string {
	file, err := parser.ParseFile(token.NewFileSet(), "name.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	out.WriteString("| annotation | meaning |\n| --- | --- |\n")
	for node := range ast.Preorder(file) {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !goName.MatchString(spec.Names[0].Name) {
			continue
		}
		name := strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)
		fmt.Fprintf(&out, "| `%s` | %s |\n", name, cell(goName.ReplaceAllString(spec.Doc.Text(), "`"+name+"`")))
	}
	return out.String()
}

// block is YAML in the documentation.
var block = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// testExamples checks the examples of the reference with the API server.
func (s *server) testExamples(t *testing.T) {
	text, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, found := range block.FindAllStringSubmatch(string(text), -1) {
		for document := range strings.SplitSeq(found[1], "---\n") {
			object := parse(t, document)
			k := kindNamed(t, fmt.Sprint(object["kind"]))
			if got, want := object["apiVersion"], v1alpha1.GroupVersion().String(); got != want {
				t.Errorf("%s: apiVersion %v, want %s", k.kind, got, want)
			}
			if _, err := s.try(t, k, v1alpha1.GroupVersion(), object["spec"].(value)); err != nil {
				t.Errorf("%v\n%s", err, document)
			}
			seen = append(seen, k.kind)
		}
	}
	for _, k := range kinds() {
		if !slices.Contains(seen, k.kind) {
			t.Errorf("no example of a %s", k.kind)
		}
	}
}
