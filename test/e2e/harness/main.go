// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/lab/netlab"
)

// RemoveAbandoned takes down the labs of runs that were killed, or ran out of time:
// their agents and servers would run, and their namespaces exist, for ever. The labs
// of a test are in its own directory, labs of "fairlab lab up" in its own. Builds of
// such runs, test/e2e/kubernetes's included, are removed too.
func RemoveAbandoned(ctx context.Context, temporary string) error {
	var failed error
	for _, pattern := range []string{
		filepath.Join(temporary, "Test*", "[0-9]*", "e2e-*"),
		filepath.Join(netlab.DefaultDir, "e2e-*"),
		filepath.Join(temporary, "fairlead-e2e-*"),
	} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, dir := range slices.DeleteFunc(dirs, inUse) {
			if err := removeDir(ctx, dir); err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s, which a killed run has left: %w", dir, err))
			}
		}
	}
	return failed
}

// inUse reports whether the process is there that made a lab or a directory, which
// has its number in the name.
func inUse(dir string) bool {
	var pid int
	_, err := fmt.Sscanf(strings.TrimPrefix(filepath.Base(dir), "fairlead-"), "e2e-%d-", &pid)
	return err != nil || !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// removeDir removes a directory, and first takes down the lab that is kept there.
func removeDir(ctx context.Context, dir string) error {
	if strings.HasPrefix(filepath.Base(dir), "fairlead-") {
		return os.RemoveAll(dir)
	}
	up, err := netlab.Labs{Dir: filepath.Dir(dir)}.Open(filepath.Base(dir))
	if err == nil {
		err = up.Down(ctx)
	}
	if err != nil || filepath.Dir(dir) == netlab.DefaultDir {
		return err
	}
	return os.RemoveAll(filepath.Dir(filepath.Dir(dir)))
}

// binEnv names a directory that has the executables already. The Makefile builds them
// once for all packages, with the race detector where that is wanted.
const binEnv = "FAIRLEAD_BIN"

// Main is TestMain of every package: it removes the labs of killed runs, and puts
// the executables first in PATH, where tests and labs find them.
func Main(m *testing.M) {
	if os.Geteuid() != 0 {
		os.Exit(m.Run()) // every test says why it is skipped
	}
	if err := RemoveAbandoned(context.Background(), os.TempDir()); err != nil {
		fmt.Fprintln(os.Stderr, err) // labs of other names don't interfere
	}
	dir := os.Getenv(binEnv)
	if dir == "" {
		built, err := build()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		dir = built
		defer os.RemoveAll(built)
	}
	if err := os.Setenv("PATH", dir+":"+os.Getenv("PATH")); err != nil {
		panic(err) // never: neither string has a zero byte
	}
	m.Run() // the generated main exits with its status
}

// build returns the directory that it has made for the executables.
func build() (dir string, err error) {
	dir, err = os.MkdirTemp("", fmt.Sprintf("fairlead-e2e-%d-", os.Getpid()))
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir, "fairlead.io/fairlead/cmd/fairlead", "fairlead.io/fairlead/cmd/fairlab")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build: %w", err)
	}
	return dir, nil
}
