// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page goes to standard output or a file; without reports there is none.
func TestBenchReport(t *testing.T) {
	const reports = "../../docs/reports"
	status, page, stderr := execute(t, "bench", "report", reports)
	if status != 0 || stderr != "" || !strings.HasPrefix(page, "<!doctype html>") {
		t.Fatalf("status %d, error %q, prints %.40q, want a page", status, stderr, page)
	}
	file := filepath.Join(t.TempDir(), "report.html")
	if status, stdout, stderr := execute(t, "bench", "report", reports, "-o", file); status != 0 || stdout != "" || stderr != "" {
		t.Errorf("-o: status %d, prints %q, error %q", status, stdout, stderr)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != page {
		t.Errorf("the file has %d bytes, error %v, want the page", len(text), err)
	}
	empty := t.TempDir()
	if status, stdout, stderr := execute(t, "bench", "report", empty); status != 1 || stdout != "" || !strings.Contains(stderr, "no reports") {
		t.Errorf("empty folder: status %d, prints %q, error %q", status, stdout, stderr)
	}
}
