// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// theTable is the table of CONTRIBUTING.md, and the packages that have tests.
func theTable(t *testing.T) (rounds []round, packages []string) {
	t.Helper()
	t.Chdir("../..")
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	if rounds, err = readRounds(string(text)); err != nil {
		t.Fatal(err)
	}
	if packages, err = testedPackages(); err != nil {
		t.Fatal(err)
	}
	return rounds, packages
}

var isTest = regexp.MustCompile("^(Test|Fuzz)")

// testsOf are the names of a package's tests and fuzz targets.
func testsOf(t *testing.T, pkg string) []string {
	t.Helper()
	files, err := filepath.Glob(pkg + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && f.Recv == nil && isTest.MatchString(f.Name.Name) && f.Name.Name != "TestMain" {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// selects says whether a list of tests has a test as a whole, and whether it has it or one of its sub-tests.
func selects(tests []string, name string) (whole, part bool) {
	for _, test := range tests {
		top, _, sub := strings.Cut(test, "/")
		if regexp.MustCompile(pattern([]string{top})).MatchString(name) {
			whole, part = whole || !sub, true
		}
	}
	return whole, part
}

// Every test runs in some round, and a round leaves out only tests that another one has.
func TestEveryTestHasARound(t *testing.T) {
	rounds, packages := theTable(t)
	names, run := map[string][]string{}, map[string]bool{}
	for _, pkg := range packages {
		names[pkg] = testsOf(t, pkg)
	}
	for _, r := range rounds {
		chosen := r.packages(rounds, packages)
		skipped := r.skipped(rounds, chosen)
		for _, pkg := range chosen {
			for _, name := range names[pkg] {
				left, _ := selects(skipped, name)
				named, _ := selects(r.tests, name)
				run[pkg+" "+name] = run[pkg+" "+name] || named || len(r.tests) == 0 && !left
			}
		}
	}
	for _, pkg := range packages {
		for _, name := range names[pkg] {
			if !run[pkg+" "+name] {
				t.Errorf("%s %s runs in no round", pkg, name)
			}
		}
	}
}

// A round has tests: its patterns match packages, and its names are names of tests there.
func TestRoundsNameExistingTests(t *testing.T) {
	rounds, packages := theTable(t)
	for _, r := range rounds {
		chosen := r.packages(rounds, packages)
		var tests []string
		for _, pkg := range chosen {
			tests = append(tests, testsOf(t, pkg)...)
		}
		for _, p := range r.patterns {
			if !slices.ContainsFunc(chosen, func(pkg string) bool { return (round{patterns: []string{p}}).match(pkg) > 0 }) {
				t.Errorf("round %s: %s has no package with tests for it", r.name, p)
			}
		}
		for _, name := range r.tests {
			if !slices.ContainsFunc(tests, func(test string) bool { _, part := selects([]string{name}, test); return part }) {
				t.Errorf("round %s: no test is called %s", r.name, name)
			}
		}
	}
}

func TestArguments(t *testing.T) {
	rounds, err := readRounds(`
| tier | round | packages | tests | how |
| --- | --- | --- | --- | --- |
| test | race | ` + "`./...`" + ` | | race |
| test | plain | ` + "`./a/c ./a/...`" + ` | | |
| ci | later | ` + "`./a/b`" + ` | TestX TestAPI* TestY/one | background -p=1 |

`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rounds {
		got = append(got, strings.Join(append(r.words(), r.arguments(rounds, []string{"./a", "./a/b", "./a/c", "./ab"})...), " "))
	}
	want := []string{
		"race ./ab",
		"plain -skip=^TestAPI|^TestX$|^TestY$/^one$ ./a/c ./a ./a/b",
		"background -p=1 -run=^TestX$|^TestAPI|^TestY$/^one$ ./a/b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
