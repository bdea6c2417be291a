// SPDX-License-Identifier: Apache-2.0

// Package octavia runs the checks of octavia/, the provider of OpenStack's Octavia: its unit tests,
// which become sub-tests, types, style and packaging.
package octavia

import (
	"encoding/xml"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// venv returns the folder of programs in a virtual environment that scripts/install-deps.sh makes.
func venv(t *testing.T, name string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "fairlead", name)
	if _, err := os.Stat(filepath.Join(dir, "made-of")); err == nil {
		return filepath.Join(dir, "bin")
	}
	if exec.CommandContext(t.Context(), "python3", "-c", "import sys; sys.exit(sys.version_info < (3, 11))").Run() != nil {
		t.Skipf("%s needs Python 3.11", name)
	}
	t.Fatalf("no %s: scripts/install-deps.sh test-all makes it", dir)
	return ""
}

// readAll opens all files of a folder, as cached results depend on them.
func readAll(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != dir || entry.Name() == "__pycache__") {
			return filepath.SkipDir
		}
		if err == nil && !entry.IsDir() {
			_, err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// command returns a command in octavia/ that leaves nothing there.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = "../../octavia"
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// binary returns the folder with the executable whose LB API the tests use.
func binary(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("fairlead")
	if err != nil {
		t.Skip("Fairlead isn't built for users other than root")
	}
	return filepath.Dir(path)
}

// report is pytest's report in the format of JUnit.
type report struct {
	Cases []struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		Time    string   `xml:"time,attr"`
		Failure *problem `xml:"failure"`
		Error   *problem `xml:"error"` // of a fixture, or of a module that can't be imported
		Skipped *problem `xml:"skipped"`
	} `xml:"testsuite>testcase"`
}

type problem struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// replay makes a sub-test of t of each test in the report.
func (r report) replay(t *testing.T) {
	t.Helper()
	for _, c := range r.Cases {
		t.Run(c.Class+"/"+c.Name, func(t *testing.T) {
			for _, p := range []*problem{c.Failure, c.Error} {
				if p != nil {
					t.Error(p.Text)
				}
			}
			if c.Skipped != nil {
				t.Skip(c.Skipped.Message)
			}
			t.Logf("%s s in pytest", c.Time)
		})
	}
}

func TestUnit(t *testing.T) {
	bin := venv(t, "openstack")
	readAll(t, "../../octavia")
	path := filepath.Join(t.TempDir(), "report.xml")
	pytest := command(t, filepath.Join(bin, "pytest"), "-q", "-p", "no:cacheprovider", "--junit-xml", path)
	pytest.Env = append(pytest.Env, "FAIRLEAD_BIN="+binary(t), "HYPOTHESIS_STORAGE_DIRECTORY="+t.TempDir())
	out, failed := pytest.CombinedOutput()
	var r report
	text, err := os.ReadFile(path)
	if err == nil {
		err = xml.Unmarshal(text, &r)
	}
	if err != nil || len(r.Cases) == 0 {
		t.Fatalf("pytest: %v, %d tests: %v\n%s", failed, len(r.Cases), err, out)
	}
	r.replay(t)
	if failed != nil && !t.Failed() {
		t.Errorf("pytest: %v\n%s", failed, out)
	}
}

func TestTypesAndStyle(t *testing.T) {
	bin := venv(t, "openstack")
	readAll(t, "../../octavia")
	for name, args := range map[string][]string{
		"types":  {"mypy", "--cache-dir=" + os.DevNull},
		"lint":   {"ruff", "check", "--no-cache"},
		"format": {"ruff", "format", "--no-cache", "--diff"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := command(t, filepath.Join(bin, args[0]), args[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
