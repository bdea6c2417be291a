// SPDX-License-Identifier: Apache-2.0

// Package arch checks the whole tree: which folder may import which, the contents
// of cmd/ and internal/observe, and how large a type and a folder may become. The
// floors are a table in ARCHITECTURE.md; every other rule is one function of
// rules_test.go. It also checks the Markdown pages: links, the index, the length of
// lines, and the figures that are copied from reports.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the path of the main module. The modules below it (tools, test/kubeall)
// import nothing of it and are not checked.
const module = "fairlead.io/fairlead"

// tree is the source code that the rules look at. All paths are relative to the
// top of the module.
type tree struct {
	architecture string // the text of ARCHITECTURE.md
	// files are the code files that are neither tests nor generated.
	files []file
}

// file is one Go file, or one file of a BPF program.
type file struct {
	path string
	// imports are import paths, without "fairlead.io/fairlead/" where they are of
	// this module, and the paths of the BPF headers that are included.
	imports []string
	syntax  *ast.File // nil for BPF
}

func (f file) folder() string { return path.Dir(f.path) }

var include = regexp.MustCompile(`(?m)^#include "([^"]+)"`)

// skipped are folders with other modules and with other files than source code.
var skipped = []string{".git", "bin", "testdata", "node_modules", "tools", "test/kubeall"}

// load reads the tree below root.
func load(t testing.TB, root fs.FS) tree {
	t.Helper()
	text, err := fs.ReadFile(root, "ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	result := tree{architecture: string(text)}
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if slices.Contains(skipped, name) || slices.Contains(skipped, path.Base(name)) {
				return fs.SkipDir
			}
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		switch path.Ext(name) {
		case ".go":
			return result.addGo(name, text)
		case ".c", ".h":
			result.addBPF(name, string(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (t *tree) addGo(name string, text []byte) error {
	if strings.HasSuffix(name, "_test.go") {
		return nil
	}
	syntax, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(syntax) {
		return nil
	}
	f := file{path: name, syntax: syntax}
	for _, i := range syntax.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		f.imports = append(f.imports, strings.TrimPrefix(imported, module+"/"))
	}
	t.files = append(t.files, f)
	return nil
}

// addBPF adds a file of a BPF program. Headers are named from bpf/, or from the
// including file's own folder.
func (t *tree) addBPF(name, text string) {
	f := file{path: name}
	for _, m := range include.FindAllStringSubmatch(text, -1) {
		header := "bpf/" + m[1]
		if !strings.Contains(m[1], "/") {
			header = path.Join(path.Dir(name), m[1])
		}
		f.imports = append(f.imports, header)
	}
	t.files = append(t.files, f)
}
