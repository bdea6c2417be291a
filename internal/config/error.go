// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/internal/lb"
)

// Place is a position in a configuration file.
type Place struct {
	File string `json:"file"`
	// Line and Column count from 1; Column counts characters, not bytes.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Path is the field, for example "services[0].backends[2].weight"; empty for an
	// error outside of fields.
	Path string `json:"path,omitempty"`
}

// String returns for example "fairlead.yaml:12:7: services[0].port".
func (p Place) String() string {
	s := fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	if p.Path != "" {
		s += ": " + p.Path
	}
	return s
}

func (p Place) compare(o Place) int {
	return cmp.Or(cmp.Compare(p.Line, o.Line), cmp.Compare(p.Column, o.Column))
}

// Error is one error in a configuration file.
type Error struct {
	Place
	Err error
}

// Error returns the place and the error on one line.
func (e *Error) Error() string { return e.Place.String() + ": " + e.Err.Error() }

// Unwrap returns the error without the place.
func (e *Error) Unwrap() error { return e.Err }

// Errors are all errors of a configuration file, in the order of the file.
type Errors []*Error

// Error returns one line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors one by one.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// Warning is a valid setting with a probably unwanted effect.
type Warning struct {
	Place
	Text string `json:"text"`
}

// String returns the place and the warning, on one line.
func (w Warning) String() string { return w.Place.String() + ": warning: " + w.Text }

// at returns the field with a path within the value, such as "port" or
// "backends[2].weight". If the field isn't given, its node is the nearest enclosing
// node.
func (v value) at(path string) value {
	found := value{decoder: v.decoder, path: v.pathOf(path), node: v.node}
	steps := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) })
	for _, step := range steps {
		next := child(found.node, step)
		if next == nil {
			break
		}
		found.node = next
	}
	return found
}

// child returns a field or element of a node, or nil.
func child(n ast.Node, step string) ast.Node {
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, entry := range n.Values {
			if entry.Key.GetToken().Value == step {
				return entry.Value
			}
		}
	case *ast.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i < len(n.Values) {
			return n.Values[i]
		}
	}
	return nil
}

// reportFieldErrors reports errors of fields. It skips fields that couldn't be read, as their
// errors have been reported.
func (v value) reportFieldErrors(found []lb.FieldError) {
	for _, f := range found {
		if field := v.at(f.Path); !field.failedWithin() {
			field.failf("%w", f.Err)
		}
	}
}

// failedWithin reports whether the field, or a field that contains it, couldn't be read.
func (v value) failedWithin() bool {
	for path := v.path; path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
		if v.failed[path] {
			return true
		}
	}
	return false
}

// unknownField says that a mapping has no field of a name, and which one has taken its place or
// is near to it, if any.
func unknownField(given, near string, names []string) error {
	if codes := "expectedCodes"; given == "status" && slices.Contains(names, codes) {
		return fmt.Errorf("renamed: use %s, in quotes", codes)
	}
	if near != "" {
		return fmt.Errorf("unknown field: did you mean %q?", near)
	}
	return fmt.Errorf("unknown field: want one of %s", join(names))
}

func join[T ~string](words []T) string {
	s := make([]string, len(words))
	for i, w := range words {
		s[i] = string(w)
	}
	return strings.Join(s, ", ")
}
