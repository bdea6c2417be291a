// SPDX-License-Identifier: Apache-2.0

// Package systemd_test checks the units of the stand-alone agent and of the API server.
package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/dataplane"
)

const (
	unit      = "fairlead.service"
	installed = "/usr/local/bin/fairlead"
)

func readUnit(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var stopLine = regexp.MustCompile(`(?m)^TimeoutStopSec=(.+)$`)

// systemd reports no problem; cmd/fairlead tests that the commands exist. systemd-analyze requires
// an executable, which is the test's own.
func TestUnits(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	switch _, err := exec.LookPath("systemd-analyze"); {
	case err != nil && os.Geteuid() == 0: // "make test" installs it
		t.Fatalf("%v: scripts/install-deps.sh test", err)
	case err != nil:
		t.Skip("this machine has no systemd")
	}
	// The lines of systemd-analyze about a unit begin with its name or path. It fails for the
	// unit and for those that it needs.
	verify := func(name, text string) (of, said string, err error) {
		copied := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", copied).CombinedOutput()
		for line := range strings.Lines(string(all)) {
			if strings.Contains(line, name+":") {
				of += line
			}
		}
		return of, string(all), err
	}
	for _, name := range []string{unit, "fairlead-apiserver.service"} {
		text := strings.ReplaceAll(readUnit(t, name), installed, binary)
		if of, said, err := verify(name, text); err != nil || of != "" {
			t.Errorf("systemd-analyze verify: %v\n%s", err, said)
		}
		if of, said, _ := verify(name, text+"\n[Service]\nTimeoutStopSec=never\n"); of == "" {
			t.Errorf("systemd-analyze reports nothing of a wrong %s:\n%s", name, said)
		}
	}
}

// The API server reads its files where they are changed: credentials of systemd are copies from the start, so that
// a token that is removed would stay valid.
func TestFilesAreFollowed(t *testing.T) {
	for _, name := range []string{unit, "fairlead-apiserver.service"} {
		if text := readUnit(t, name); strings.Contains(text, "LoadCredential") || strings.Contains(text, "CREDENTIALS_DIRECTORY") {
			t.Errorf("%s has copies of credentials", name)
		}
	}
}

// systemd waits longer for the end of the agent than the agent waits by default for
// packets.
func TestStopOutlastsDrain(t *testing.T) {
	conf, err := config.Parse(unit, "node: {name: lb1, interfaces: [eth0]}\nservices: []\n", dataplane.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	line := stopLine.FindStringSubmatch(readUnit(t, unit))
	if line == nil {
		t.Fatal("no TimeoutStopSec")
	}
	stop, err := time.ParseDuration(line[1])
	if drain := conf.Node.DrainTimeout; err != nil || stop < 2*drain {
		t.Errorf("TimeoutStopSec %s, error %v: want at least twice the drain's %s", stop, err, drain)
	}
}
