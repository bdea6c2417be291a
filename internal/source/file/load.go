// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/internal/dataplane"
)

// Load reads and parses a configuration file once.
func Load(path string, limits dataplane.Limits) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, limits)
}

// LoadKubernetes reads and parses a file once that is meant for an agent with
// --kubernetes.
func LoadKubernetes(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return ParseKubernetes(path, data)
}

// Either is a node's configuration or a reflector's; the other is nil.
type Either struct {
	Node      *Config
	Reflector *Reflector
}

// LoadEither reads and parses a file, whose it may be: a reflector's has the section
// "reflector".
func LoadEither(path string, limits dataplane.Limits) (e Either, err error) {
	data, err := readFile(path)
	if err != nil {
		return e, err
	}
	return ParseEither(path, data, limits)
}

// ParseEither parses as Parse does, or as ParseReflector does.
func ParseEither(name string, data []byte, limits dataplane.Limits) (e Either, err error) {
	if hasField(data, "reflector") {
		e.Reflector, err = ParseReflector(name, data)
	} else {
		e.Node, err = Parse(name, data, limits)
	}
	return e, err
}

// hasField reports whether a file has a field of that name, not within another.
func hasField(data []byte, name string) bool {
	mapping, ok := new(decoder).parseTree(data).(*ast.MappingNode)
	return ok && slices.ContainsFunc(mapping.Values, func(entry *ast.MappingValueNode) bool {
		return entry.Key.GetToken().Value == name
	})
}

// readFile reads a regular file and no more than Parse takes.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxSize+1))
}
