// SPDX-License-Identifier: Apache-2.0

// Package systemd_test checks the unit of the stand-alone agent: systemd accepts it,
// and the agent accepts its command line.
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

func readUnit(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	execLine = regexp.MustCompile(`(?m)^Exec\w+=` + installed + ` (.+)$`)
	stopLine = regexp.MustCompile(`(?m)^TimeoutStopSec=(.+)$`)
)

// The commands and flags of the unit exist, and systemd reports no problem.
func TestUnit(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "fairlead")
	if said, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/fairlead").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	t.Run("commands", func(t *testing.T) { checkCommands(t, binary) })
	t.Run("systemd", func(t *testing.T) { verify(t, binary) })
}

func checkCommands(t *testing.T, binary string) {
	lines := execLine.FindAllStringSubmatch(readUnit(t), -1)
	if len(lines) != 2 {
		t.Fatalf("%d commands, want ExecStart and ExecReload", len(lines))
	}
	for _, line := range lines {
		args := append(strings.Fields(line[1]), "--help")
		if said, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
			t.Errorf("fairlead %q: %v\n%s", args, err, said)
		}
	}
}

// verify runs systemd-analyze, which requires the binary.
func verify(t *testing.T, binary string) {
	switch _, err := exec.LookPath("systemd-analyze"); {
	case err != nil && os.Geteuid() == 0: // "make test" installs it
		t.Fatalf("%v: scripts/install-deps.sh test", err)
	case err != nil:
		t.Skip("this machine has no systemd")
	}
	copied := filepath.Join(t.TempDir(), unit)
	if err := os.WriteFile(copied, []byte(strings.ReplaceAll(readUnit(t), installed, binary)), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--recursive-errors=no", copied).CombinedOutput()
	if err != nil || strings.Contains(string(said), unit+":") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}
}

// systemd waits longer for the end of the agent than the agent waits by default for
// packets.
func TestStopOutlastsDrain(t *testing.T) {
	conf, err := config.Parse(unit, "node: {name: lb1, interfaces: [eth0]}\nservices: []\n", dataplane.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	line := stopLine.FindStringSubmatch(readUnit(t))
	if line == nil {
		t.Fatal("no TimeoutStopSec")
	}
	stop, err := time.ParseDuration(line[1])
	if drain := conf.Node.DrainTimeout; err != nil || stop < 2*drain {
		t.Errorf("TimeoutStopSec %s, error %v: want at least twice the drain's %s", stop, err, drain)
	}
}
