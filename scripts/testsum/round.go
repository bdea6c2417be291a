// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// crowded is the package whose clusters leave no processor to others: who tests with
// it runs when all others, with their clocks, are done, and one after the other.
const crowded = "fairlead.io/fairlead/test/cluster"

// rounds returns the arguments of go test for one round after the other. Patterns of
// packages come last in args and begin with "./"; without one, args are all there is
// to do.
func rounds(ctx context.Context, args []string) ([][]string, error) {
	last := len(args)
	for last > 0 && strings.HasPrefix(args[last-1], "./") {
		last--
	}
	flags, patterns := args[:last], args[last:]
	if len(patterns) == 0 {
		return [][]string{args}, nil
	}
	const format = `{{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}`
	out, err := exec.CommandContext(ctx, "go", append([]string{"list", "-e", "-f", format}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	return plan(flags, string(out)), nil
}

// plan makes rounds of what go list says, a line for each package with what its
// tests import.
func plan(flags []string, list string) [][]string {
	var first, second []string
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if slices.Contains(fields[1:], crowded) {
			second = append(second, fields[0])
		} else {
			first = append(first, fields[0])
		}
	}
	var all [][]string
	if len(first) > 0 {
		all = append(all, slices.Concat(flags, first))
	}
	if len(second) > 0 {
		all = append(all, slices.Concat([]string{"-p=1"}, flags, second))
	}
	return all
}
