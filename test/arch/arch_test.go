// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"io/fs"
	"os"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestTree checks this tree.
func TestTree(t *testing.T) {
	for _, v := range check(load(t, os.DirFS("../.."))) {
		t.Error(v)
	}
}

func check(t tree) []string {
	var found []string
	for _, rule := range rules {
		found = append(found, rule(t)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestMutants breaks each rule in a small tree. A case of testdata is a tree whose
// comment has the rules' findings, a line each.
func TestMutants(t *testing.T) {
	cases, err := fs.Glob(os.DirFS("testdata"), "*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatal("no mutants:", err)
	}
	for _, name := range cases {
		t.Run(name, func(t *testing.T) {
			archive, err := txtar.ParseFile("testdata/" + name)
			if err != nil {
				t.Fatal(err)
			}
			root := fstest.MapFS{}
			for _, f := range archive.Files {
				root[f.Name] = &fstest.MapFile{Data: f.Data}
			}
			var got []byte
			for _, v := range check(load(t, root)) {
				got = append(got, v+"\n"...)
			}
			if string(got) != string(archive.Comment) {
				t.Errorf("found\n%swant\n%s", got, archive.Comment)
			}
		})
	}
}
