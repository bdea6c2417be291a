// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree is a source tree with one report.
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

// stale writes a report with these digests and returns why it isn't current.
func (tr tree) stale(bench string, quick bool, measured map[string]string) (string, error) {
	tr.t.Helper()
	r, err := NewReport(bench, "abc123", quick)
	if err != nil {
		tr.t.Fatal(err)
	}
	r.Measured = measured
	var text bytes.Buffer
	if err := r.WriteJSON(&text); err != nil {
		tr.t.Fatal(err)
	}
	tr.write("docs/reports/"+bench+".json", text.String())
	reports, err := CommittedReports(tr.root)
	if err != nil {
		return "", err
	}
	return reports[0].Stale, nil
}

func TestReportsOfGoCode(t *testing.T) {
	tr := tree{t, t.TempDir()}
	const file, code = "internal/bgp/speaker/a.go", "package speaker\n\n// one\nfunc f() int { return 1 }\n"
	tr.write(file, code)
	tr.git("init", "-q")
	tr.git("add", ".")
	tr.git("commit", "-qm", "a")
	commit := tr.git("rev-parse", "HEAD")
	tr.write("docs/reports/ecmp.json", "{}")
	tr.git("add", ".")
	measured, err := Digests(tr.root, "ecmp", commit)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ name, text, want string }{
		{file, code, ""},
		{file, "package speaker\n\n// two\nfunc f() int {\n\treturn 1\n}\n", ""},
		{"internal/bgp/speaker/a_test.go", "package speaker\n", ""},
		{"internal/other/a.go", "package other\n", ""},
		{file, strings.Replace(code, "1", "2", 1), "changed: internal/bgp"},
		{file, code, ""},
		{"internal/bgp/b.go", "package bgp\n", "changed: internal/bgp"},
	} {
		tr.write(change.name, change.text)
		if got, err := tr.stale("ecmp", false, measured); err != nil || got != change.want {
			t.Errorf("%s as %q: %q, %v, want %q", change.name, change.text, got, err, change.want)
		}
	}
	if got, err := tr.stale("ecmp", true, measured); err != nil || got != "measured with --quick" {
		t.Errorf("quick: %q, %v", got, err)
	}
	if _, err := tr.stale("ecmp", false, nil); err == nil || !strings.Contains(err.Error(), "ecmp.json: report without digests") {
		t.Errorf("without digests: %v", err)
	}
	for commit, want := range map[string]string{commit: "internal/bgp/b.go differs", commit + "-dirty": "not a clean build", "unknown": "not a clean build", strings.Repeat("0", 40): "git diff"} {
		if got, err := Digests(tr.root, "ecmp", commit); got != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a binary of commit %s: %v, %v, want %q", commit, got, err, want)
		}
	}
	tr.write(file, code+"// changed\n")
	if got, err := Digests(tr.root, "ecmp", commit); got != nil || err == nil || !strings.Contains(err.Error(), file+" differs") {
		t.Errorf("changed tree: %v, %v", got, err)
	}
}

// Programs count by their instructions, wherever the object is.
func TestReportsOfPrograms(t *testing.T) {
	tr := tree{t, t.TempDir()}
	object, err := os.ReadFile("../../internal/dataplane/xdp/table/balancer_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	sections, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	measured, err := digests("../..", []string{program})
	if err != nil {
		t.Fatal(err)
	}
	for section, want := range map[string]string{".BTF": "", ".BTF.ext": "", "xdp": "changed: " + program, ".text": "changed: " + program} {
		changed := slices.Clone(object)
		changed[sections.Section(section).Offset+100]++
		tr.write("internal/other/"+program, string(changed))
		if got, err := tr.stale("packet", false, measured); err != nil || got != want {
			t.Errorf("other %s: %q, %v, want %q", section, got, err, want)
		}
	}
}
