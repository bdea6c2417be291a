// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/spec"
)

// decoder collects the errors of one file.
type decoder struct {
	file   string
	limits dataplane.Limits
	// services are those that have been read.
	services serviceIndex
	part     part
	// declared are the fields of declarations that have been read.
	declared map[reflect.Type][]declaredField
	// mayBeEmpty takes a file without document as one without fields.
	mayBeEmpty bool

	errs     Errors
	warnings *[]Warning
	// failed has the paths of fields that couldn't be read, to suppress errors that
	// are consequences.
	failed map[string]bool
}

func (d *decoder) fail(at *token.Position, path string, err error) {
	d.errs = append(d.errs, &Error{Place: d.place(at, path), Err: err})
	if d.failed == nil {
		d.failed = make(map[string]bool)
	}
	d.failed[path] = true
}

// sort puts errors and warnings in the order of the file.
func (d *decoder) sort() {
	slices.SortStableFunc(d.errs, func(a, b *Error) int { return a.compare(b.Place) })
	slices.SortStableFunc(*d.warnings, func(a, b Warning) int { return a.compare(b.Place) })
}

func (d *decoder) place(at *token.Position, path string) Place {
	return Place{File: d.file, Line: d.part.line(at.Line), Column: at.Column, Path: path}
}

// value is a node of the tree and its path.
type value struct {
	*decoder
	path string
	node ast.Node
}

// reader reads a value into a target, or reports an error.
type reader[T any] func(v value, to *T)

// field is a field of a mapping.
type field struct {
	name     string
	required bool
	read     func(value)
}

func required[T any](name string, to *T, read reader[T]) field {
	return field{name: name, required: true, read: func(v value) { read(v, to) }}
}

func optional[T any](name string, to *T, read reader[T]) field {
	return field{name: name, read: func(v value) { read(v, to) }}
}

// notAllowed is a field that is rejected; where names the source of the setting instead.
func notAllowed(name, where string) field {
	return field{name: name, read: func(v value) { v.failf("not here: %s", where) }}
}

func (v value) failf(format string, args ...any) {
	v.fail(position(v.node), v.path, fmt.Errorf(format, args...))
}

// check reports err unless it is nil.
func (v value) check(err error) {
	if err != nil {
		v.failf("%w", err)
	}
}

// warn adds a warning once per text, at the first place.
func (v value) warn(text string) {
	if !slices.ContainsFunc(*v.warnings, func(w Warning) bool { return w.Text == text }) {
		*v.warnings = append(*v.warnings, Warning{Place: v.place(position(v.node), v.path), Text: text})
	}
}

// pathOf returns the path of a field of the value.
func (v value) pathOf(name string) string {
	if v.path == "" {
		return name
	}
	return v.path + "." + name
}

// failedAny reports whether one of the value's named fields couldn't be read.
func (v value) failedAny(names ...string) bool {
	for _, name := range names {
		if v.failed[v.pathOf(name)] {
			return true
		}
	}
	return false
}

// readFields reads a mapping with these fields and no others.
func (v value) readFields(fields ...field) {
	mapping, ok := v.node.(*ast.MappingNode)
	if !ok {
		v.unexpected("a mapping")
		return
	}
	lines := make([]int, len(fields)) // of each field; 0 if not given yet
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	for _, entry := range mapping.Values {
		key, at := entry.Key.GetToken().Value, position(entry.Key)
		path := v.pathOf(key)
		switch i := slices.IndexFunc(fields, func(f field) bool { return f.name == key }); {
		case i < 0:
			near := spec.Closest(key, names)
			v.fail(at, path, unknownField(key, near, names))
			if near != "" {
				v.failed[v.pathOf(near)] = true // misspelt, not missing
			}
		case lines[i] != 0:
			v.fail(at, path, fmt.Errorf("already given on line %d", v.part.line(lines[i])))
		default:
			lines[i] = at.Line
			fields[i].read(value{decoder: v.decoder, path: path, node: entry.Value})
		}
	}
	for i, f := range fields {
		if f.required && lines[i] == 0 && !v.failedAny(f.name) {
			v.fail(position(v.node), v.pathOf(f.name), errors.New("missing"))
		}
	}
}

// list reads a list, each element with read.
func list[T any](read reader[T]) reader[[]T] {
	return func(v value, to *[]T) {
		sequence, ok := v.node.(*ast.SequenceNode)
		if !ok {
			v.unexpected("a list")
			return
		}
		*to = make([]T, len(sequence.Values))
		first := 0
		if v.path == "services" {
			first = v.part.first
		}
		for i, node := range sequence.Values {
			read(value{decoder: v.decoder, path: fmt.Sprintf("%s[%d]", v.path, first+i), node: node}, &(*to)[i])
		}
	}
}

// nonEmpty reads a list that has at least one element.
func nonEmpty[T any](what string, read reader[[]T]) reader[[]T] {
	return func(v value, to *[]T) {
		if read(v, to); *to != nil && len(*to) == 0 {
			v.failf("no %s: want at least one", what)
		}
	}
}

// pointer reads a value into a new target.
func pointer[T any](read reader[T]) reader[*T] {
	return func(v value, to **T) {
		*to = new(T)
		read(v, *to)
	}
}

// unexpected reports that the value has the wrong type.
func (v value) unexpected(want string) {
	if v.node.Type() == ast.NullType {
		v.failf("no value: want %s", want)
		return
	}
	v.failf("have %s: want %s", describe(v.node), want)
}

func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.StringNode:
		return fmt.Sprintf("the text %q", n.Value)
	default:
		return n.GetToken().Value
	}
}
