// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

const module = "fairlead.io/fairlead/"

// crowded is the package whose API servers and clusters leave no processor to others:
// who tests with it runs when all others, with their clocks, are done. Those below
// test/ start whole clusters, and run one after the other at last.
const (
	crowded = module + "test/cluster"
	whole   = module + "test/"
)

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
	var free, light, heavy []string
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		switch name := fields[0]; {
		case !slices.Contains(fields[1:], crowded):
			free = append(free, name)
		case strings.HasPrefix(name, whole):
			heavy = append(heavy, name)
		default:
			light = append(light, name)
		}
	}
	slices.SortStableFunc(free, func(a, b string) int { return rank(a) - rank(b) })
	var all [][]string
	for _, packages := range [][]string{free, light} {
		if len(packages) > 0 {
			all = append(all, slices.Concat(flags, packages))
		}
	}
	if len(heavy) > 0 {
		all = append(all, slices.Concat([]string{"-p=1"}, flags, heavy))
	}
	return all
}

// rank is a package's place in the order in which go test begins. Those that take
// minutes are first: what begins last has a processor for itself, while the others'
// is idle.
func rank(name string) int {
	switch name {
	case module + "test/e2e":
		return 0
	case module + "internal/dataplane/xdp":
		return 1
	}
	return 2
}
