// SPDX-License-Identifier: Apache-2.0

// Package systemd_test checks the units of the stand-alone agent and of the API server:
// systemd accepts them, and the programs accept their command lines.
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

// units are all units, with the number of their commands.
var units = map[string]int{unit: 2, "fairlead-apiserver.service": 1}

func readUnit(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	execLine = regexp.MustCompile(`(?m)^Exec\w+=` + installed + ` (.+)$`)
	stopLine = regexp.MustCompile(`(?m)^TimeoutStopSec=(.+)$`)
)

// The commands and flags of the units exist, and systemd reports no problem.
func TestUnits(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "fairlead")
	if said, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/fairlead").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	for name := range units {
		t.Run(name+"/commands", func(t *testing.T) { checkCommands(t, name, binary) })
		t.Run(name+"/systemd", func(t *testing.T) { verify(t, name, binary) })
	}
}

func checkCommands(t *testing.T, name, binary string) {
	lines := execLine.FindAllStringSubmatch(readUnit(t, name), -1)
	if len(lines) != units[name] {
		t.Fatalf("%d commands, want %d", len(lines), units[name])
	}
	for _, line := range lines {
		args := append(strings.Fields(line[1]), "--help")
		if said, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
			t.Errorf("fairlead %q: %v\n%s", args, err, said)
		}
	}
}

// verify runs systemd-analyze, which requires the binary.
func verify(t *testing.T, name, binary string) {
	switch _, err := exec.LookPath("systemd-analyze"); {
	case err != nil && os.Geteuid() == 0: // "make test" installs it
		t.Fatalf("%v: scripts/install-deps.sh test", err)
	case err != nil:
		t.Skip("this machine has no systemd")
	}
	copied := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(copied, []byte(strings.ReplaceAll(readUnit(t, name), installed, binary)), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--recursive-errors=no", copied).CombinedOutput()
	if err != nil || strings.Contains(string(said), name+":") {
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
	line := stopLine.FindStringSubmatch(readUnit(t, unit))
	if line == nil {
		t.Fatal("no TimeoutStopSec")
	}
	stop, err := time.ParseDuration(line[1])
	if drain := conf.Node.DrainTimeout; err != nil || stop < 2*drain {
		t.Errorf("TimeoutStopSec %s, error %v: want at least twice the drain's %s", stop, err, drain)
	}
}
