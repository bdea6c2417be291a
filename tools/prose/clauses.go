// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// clauses are standard English, but comments that use them often read translated. Each
// package may have as many as known.txt says, and all comments together maxClauses.
var clauses = []pattern{
	is("what", `\bwhat\b`, `the noun ("the report", not "what is reported")`),
	is("that of", `\b(that|those) of\b`, `an adjective ("node rules"), or the noun again`),
}

// maxClauses limits each of the clauses, in occurrences per 1,000 words.
const maxClauses = 1.0

var word = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)

// usage counts words and clauses in the comments and names of Go files.
type usage struct {
	words int
	found []finding
}

// add counts the words and clauses of a file.
func (u *usage) add(name string, text []byte) {
	if path.Ext(name) != ".go" || strings.HasPrefix(name, "tools/prose/") || generated.Match(text) {
		return
	}
	read := ofGo(text, false)
	u.words += len(word.FindAllString(read, -1))
	u.found = append(u.found, findAll(clauses, name, read)...)
}

// rate returns the occurrences of a clause per 1,000 words.
func (u *usage) rate(clause *pattern) float64 {
	count := 0
	for _, f := range u.found {
		if f.pattern == clause {
			count++
		}
	}
	return 1000 * float64(count) / float64(max(u.words, 1))
}

// compare returns how many limits are exceeded, and the lines of known.txt.
func (u *usage) compare(known map[string]int) (wrong int, lines string) {
	counts := map[string][]finding{}
	for _, f := range u.found {
		key := f.pattern.text + " in " + path.Dir(f.where)
		counts[key] = append(counts[key], f)
	}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		found := counts[key]
		if len(found) > known[key] {
			wrong++
			fmt.Printf("%d times %q, and %d are known: use %s\n", len(found), key, known[key], found[0].pattern.instead)
			for _, f := range found {
				fmt.Printf("  %s: %s\n", f.where, f.text)
			}
		}
		if n := min(len(found), known[key]); n > 0 {
			lines += fmt.Sprintf("%d\t%s\n", n, key)
		}
	}
	for i := range clauses {
		rate := u.rate(&clauses[i])
		fmt.Printf("%q: %.2f per 1,000 words of comments\n", clauses[i].text, rate)
		if rate > maxClauses {
			wrong++
			fmt.Printf("more than %.1f: use %s\n", maxClauses, clauses[i].instead)
		}
	}
	return wrong, lines
}

var declaration = regexp.MustCompile(`(?m)^(?:func(?: \([^)\n]*\))?|type) (\w+)`)

// declared returns the offsets of the names of functions, methods and types.
func declared(text []byte) map[int]bool {
	names := map[int]bool{}
	for _, at := range declaration.FindAllSubmatchIndex(text, -1) {
		names[at[2]] = true
	}
	return names
}

var hump = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

// split returns the words of a name in camel case.
func split(name string) string {
	return strings.ReplaceAll(hump.ReplaceAllString(name, "$1$3 $2$4"), "_", " ")
}
