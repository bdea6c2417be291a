// SPDX-License-Identifier: Apache-2.0

package file

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/internal/lb"
)

// at returns the field of that path within the value, such as "port" or
// "backends[2].weight". Its node is the nearest that the file has: the one that
// the field would be in if it isn't given.
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

// child returns the field or the element of a node; nil if it has none.
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

// report places what was found in the fields of the value. What follows from a
// field that couldn't be read is left out.
func (v value) report(found []lb.FieldError) {
	for _, f := range found {
		if field := v.at(f.Path); !field.unread() {
			field.failf("%w", f.Err)
		}
	}
}

// unread reports whether the field, or something that it is in, couldn't be
// read.
func (v value) unread() bool {
	for path := v.path; path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
		if v.failed[path] {
			return true
		}
	}
	return false
}
