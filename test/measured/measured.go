// SPDX-License-Identifier: Apache-2.0

// Package measured writes the measurements of end-to-end tests as committed reports (docs/reports). "go test" of a package
// that uses it has the flag -reports.
package measured

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/lab/bench"
)

var folder = flag.String("reports", "", "folder for the reports of tests that measure, in a checkout without changes")

// Papers is the source of verdicts on claims of the dissertation.
const Papers = "Takahashi, A Study on Portable Load Balancer for Container Clusters"

// Wanted reports whether the flag is set: tests measure more then.
func Wanted() bool { return *folder != "" }

// Write writes NAME.json, as fill fills it, if the flag is set and the test hasn't failed. The report's digests are of
// the tree at root.
func Write(t testing.TB, root, name string, fill func(r *bench.Report)) {
	t.Helper()
	if !Wanted() || t.Failed() {
		return
	}
	head, err := exec.CommandContext(t.Context(), "git", "-C", root, "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatalf("git rev-parse: %v", err)
	}
	r, err := bench.NewReport(name, strings.TrimSpace(string(head)), false)
	if err != nil {
		t.Fatal(err)
	}
	if r.Measured, err = bench.Digests(root, name, r.Commit); err != nil {
		t.Fatal(err)
	}
	fill(r)
	file, err := os.Create(filepath.Join(*folder, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := r.WriteJSON(file); err != nil {
		t.Fatal(err)
	}
}

// Runs are times in milliseconds.
func Runs(times ...time.Duration) (runs bench.Runs) {
	for _, d := range times {
		runs = append(runs, bench.Milliseconds(d))
	}
	return runs
}
