// SPDX-License-Identifier: Apache-2.0

// Command tier prints the rounds of a tier of tests, which the table in CONTRIBUTING.md
// lists: "go run ./test/tier ci". scripts/test.sh runs them.
//
// A line is one round: its name, how it runs, and the arguments of go test, separated by
// tabs. A test runs in the round that names it, else in the round with the longest pattern
// that matches its package.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// tiers are the tiers in the order of the table.
var tiers = []string{"test", "ci", "all"}

// round is one call of go test.
type round struct {
	tier, name string
	// patterns select packages as go list does, relative to the top of the tree.
	patterns []string
	// tests are names of tests, or of tests with one sub-test (Test/sub); the last letter may
	// be "*". Without any, the round has all tests that no other round of the package names.
	tests []string
	// how are words for scripts/test.sh, and flags of go test.
	how []string
}

// readRounds reads the rows of the table from the text of CONTRIBUTING.md.
func readRounds(text string) ([]round, error) {
	const header = "| tier | round | packages | tests | how |\n"
	_, table, ok := strings.Cut(text, header)
	if !ok {
		return nil, errors.New("CONTRIBUTING.md has no table of rounds")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var rounds []round
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.ReplaceAll(line, "`", ""), "|")
		if strings.HasPrefix(line, "| ---") {
			continue
		}
		if len(cells) != 7 { // two of them outside
			return nil, fmt.Errorf("CONTRIBUTING.md: want 5 columns: %s", line)
		}
		r := round{
			tier: strings.TrimSpace(cells[1]), name: strings.TrimSpace(cells[2]),
			patterns: strings.Fields(cells[3]), tests: strings.Fields(cells[4]), how: strings.Fields(cells[5]),
		}
		if !slices.Contains(tiers, r.tier) {
			return nil, fmt.Errorf("CONTRIBUTING.md: round %s: tier %q: want one of %v", r.name, r.tier, tiers)
		}
		rounds = append(rounds, r)
	}
	return rounds, nil
}

// match returns the length of the pattern of the round that matches a package, 0 if none does.
func (r round) match(pkg string) int {
	longest := 0
	for _, pattern := range r.patterns {
		prefix, all := strings.CutSuffix(pattern, "...")
		if pattern == pkg || all && strings.HasPrefix(pkg+"/", prefix) {
			longest = max(longest, len(pattern))
		}
	}
	return longest
}

// packages are those in which the round runs tests, in the order of its patterns.
func (r round) packages(rounds []round, all []string) []string {
	var chosen []string
	for _, pattern := range r.patterns {
		for _, pkg := range all {
			if (round{patterns: []string{pattern}}).match(pkg) > 0 && !slices.Contains(chosen, pkg) && r.has(rounds, pkg) {
				chosen = append(chosen, pkg)
			}
		}
	}
	return chosen
}

// has says whether the round runs tests of a package that matches one of its patterns.
func (r round) has(rounds []round, pkg string) bool {
	return len(r.tests) > 0 || !slices.ContainsFunc(rounds, func(other round) bool {
		return len(other.tests) == 0 && other.match(pkg) > r.match(pkg)
	})
}

// skipped are the tests that other rounds name in packages of this one: all of them, or sub-tests of
// those that this one names. Rounds that run tests "again" take nothing out.
func (r round) skipped(rounds []round, packages []string) []string {
	var names []string
	for _, other := range rounds {
		if other.name == r.name || slices.Contains(other.how, "again") ||
			!slices.ContainsFunc(packages, func(pkg string) bool { return other.match(pkg) > 0 }) {
			continue
		}
		for _, name := range other.tests {
			top, _, sub := strings.Cut(name, "/")
			if len(r.tests) == 0 || sub && slices.Contains(r.tests, top) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// words are those for scripts/test.sh, at least one.
func (r round) words() []string {
	words := slices.DeleteFunc(slices.Clone(r.how), func(word string) bool { return strings.HasPrefix(word, "-") })
	if len(words) == 0 {
		return []string{"plain"}
	}
	return words
}

// arguments are flags and packages for go test.
func (r round) arguments(rounds []round, all []string) []string {
	var args []string
	for _, word := range r.how {
		if strings.HasPrefix(word, "-") {
			args = append(args, word)
		}
	}
	packages := r.packages(rounds, all)
	if len(r.tests) > 0 {
		args = append(args, "-run="+pattern(r.tests))
	}
	if skip := r.skipped(rounds, packages); len(skip) > 0 {
		args = append(args, "-skip="+pattern(skip))
	}
	return append(args, packages...)
}

// pattern is the regular expression of go test -run and -skip for names of tests.
func pattern(names []string) string {
	alternatives := make([]string, len(names))
	for i, name := range names {
		parts := strings.Split(name, "/")
		for j, part := range parts {
			prefix, open := strings.CutSuffix(part, "*")
			parts[j] = "^" + regexp.QuoteMeta(prefix) + map[bool]string{false: "$"}[open]
		}
		alternatives[i] = strings.Join(parts, "/")
	}
	return strings.Join(alternatives, "|")
}

// testedPackages lists the packages that have tests, as ./folder.
func testedPackages() ([]string, error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}./{{slice .ImportPath (len .Module.Path)}}{{end}}`
	out, err := exec.Command("go", "list", "-f", format, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	packages := strings.Fields(strings.ReplaceAll(string(out), ".//", "./"))
	slices.SortFunc(packages, cmp.Compare)
	return packages, nil
}

func run(tier string) error {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		return err
	}
	rounds, err := readRounds(string(text))
	if err != nil {
		return err
	}
	packages, err := testedPackages()
	if err != nil {
		return err
	}
	for _, r := range rounds {
		if r.tier == tier {
			fmt.Printf("%s\t%s\t%s\n", r.name, strings.Join(r.words(), " "), strings.Join(r.arguments(rounds, packages), " "))
		}
	}
	return nil
}

func main() {
	if len(os.Args) != 2 || !slices.Contains(tiers, os.Args[1]) {
		fmt.Fprintf(os.Stderr, "usage: tier %s\n", strings.Join(tiers, "|"))
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "tier:", err)
		os.Exit(1)
	}
}
