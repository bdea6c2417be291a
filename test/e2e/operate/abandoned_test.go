// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Labs of a killed run are removed, labs of a live one stay.
func TestRemoveAbandoned(t *testing.T) {
	topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: lb.L2DSR, Balancers: 1, Servers: 1})
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

	if err := harness.RemoveAbandoned(t.Context(), temporary); err != nil {
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
