// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// removeAbandoned takes down the labs of runs that were killed, or ran out of time:
// their agents and servers would run, and their namespaces exist, for ever. The labs
// of a test are in its own directory, those of "fairlead lab up" where it keeps them.
// What such runs have built goes too, that of test/e2e/kubernetes included.
func removeAbandoned(ctx context.Context, temporary string) error {
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

// What a killed run has left is gone, what a live one has made is not touched.
func TestRemoveAbandoned(t *testing.T) {
	topology, err := netlab.ECMP(netlab.ECMPOptions{Fairlead: "fairlead", Forward: lb.L2DSR, Balancers: 1, Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	own := bringUp(t, "alive", topology)
	temporary := t.TempDir()
	dir := filepath.Join(temporary, "TestKilled1", "001")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// No process has a number above pid_max, which is 4,194,304 at most.
	name := fmt.Sprintf("e2e-%d-left", 4_200_000+os.Getpid())
	left, err := netlab.Labs{Dir: dir}.Up(t.Context(), name, topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = left.Down(context.Background()) })
	host := left.State().Host("lb1")
	built := filepath.Join(temporary, "fairlead-"+name)
	if err := os.Mkdir(built, 0o700); err != nil {
		t.Fatal(err)
	}

	if err := removeAbandoned(t.Context(), temporary); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{filepath.Dir(dir), built} {
		if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
	if spaces, err := os.ReadDir("/run/netns"); err != nil || strings.Contains(fmt.Sprint(spaces), host.Namespace) {
		t.Errorf("namespaces %v, %v: %s is among them", spaces, err, host.Namespace)
	}
	if names := fmt.Sprint(own.programs(t)); names == "" {
		t.Error("a lab of a live run is gone")
	}
}
