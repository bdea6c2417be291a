// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tree is a git work tree with one report.
type tree struct {
	t    *testing.T
	root string
}

func (tr tree) git(args ...string) string {
	tr.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", tr.root, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		tr.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (tr tree) write(name, text string) {
	tr.t.Helper()
	path := filepath.Join(tr.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tr.t.Fatal(err)
	}
}

// stale writes a report of the commit and returns why it isn't current.
func (tr tree) stale(bench, commit string, quick bool) string {
	tr.t.Helper()
	r, err := NewReport(bench, commit, quick)
	if err != nil {
		tr.t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.WriteJSON(&text); err != nil {
		tr.t.Fatal(err)
	}
	tr.write("docs/reports/"+bench+".json", text.String())
	reports, err := CommittedReports(tr.root)
	if err != nil || len(reports) != 1 {
		tr.t.Fatalf("%d reports, %v", len(reports), err)
	}
	return reports[0].Stale
}

func TestReportsOfGoCode(t *testing.T) {
	tr := tree{t, t.TempDir()}
	const file, code = "internal/bgp/speaker/a.go", "package speaker\n\n// one\nfunc f() int { return 1 }\n"
	tr.write(file, code)
	tr.git("init", "-q")
	tr.git("add", ".")
	tr.git("commit", "-qm", "a")
	commit := tr.git("rev-parse", "HEAD")
	for _, change := range []struct{ name, text, want string }{
		{file, code, ""},
		{file, "package speaker\n\n// two\nfunc f() int {\n\treturn 1\n}\n", ""},
		{"internal/bgp/speaker/a_test.go", "package speaker\n", ""},
		{"internal/other/a.go", "package other\n", ""},
		{file, strings.Replace(code, "1", "2", 1), "changed since its commit: internal/bgp"},
		{"internal/bgp/b.go", "package bgp\n", "changed since its commit: internal/bgp"},
	} {
		tr.write(change.name, change.text)
		if got := tr.stale("ecmp", commit, false); got != change.want {
			t.Errorf("%s as %q: %q, want %q", change.name, change.text, got, change.want)
		}
	}
	for commit, want := range map[string]string{commit + "-dirty": "not a clean build", "unknown": "not a clean build", strings.Repeat("0", 40): "git archive"} {
		if got := tr.stale("ecmp", commit, false); !strings.Contains(got, want) {
			t.Errorf("commit %s: %q, want %q", commit, got, want)
		}
	}
	if got := tr.stale("ecmp", commit, true); got != "measured with --quick" {
		t.Errorf("quick: %q", got)
	}
}

// Programs count by their instructions, wherever the object is.
func TestReportsOfPrograms(t *testing.T) {
	tr := tree{t, t.TempDir()}
	object := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tr.write("a/balancer_bpfel.o", object("../wire/wire_bpfel.o"))
	tr.git("init", "-q")
	tr.git("add", ".")
	tr.git("commit", "-qm", "a")
	commit := tr.git("rev-parse", "HEAD")
	if err := os.Rename(filepath.Join(tr.root, "a"), filepath.Join(tr.root, "b")); err != nil {
		t.Fatal(err)
	}
	if got := tr.stale("packet", commit, false); got != "" {
		t.Errorf("moved: %q", got)
	}
	tr.write("b/balancer_bpfel.o", object("../../internal/dataplane/xdp/table/balancer_bpfel.o"))
	if got := tr.stale("packet", commit, false); got != "changed since its commit: balancer_bpfel.o" {
		t.Errorf("other program: %q", got)
	}
}
