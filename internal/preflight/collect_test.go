// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestCollect reads the machine that runs the test: what is there can't be
// foretold, but the loopback is, and what is missing must be told apart.
func TestCollect(t *testing.T) {
	missing := fmt.Sprintf("no%d", os.Getpid())
	facts, err := Collect([]string{"lo", missing}, filepath.Join(t.TempDir(), "not", "there"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseRelease(facts.Kernel); err != nil {
		t.Error(err)
	}
	if facts.BPFFS.Mounted {
		t.Error("a temporary directory is taken for a BPF file system")
	}
	if os.Geteuid() == 0 && facts.Capabilities == 0 {
		t.Error("root without capabilities")
	}
	if len(facts.Interfaces) != 2 {
		t.Fatalf("interfaces %+v, want two", facts.Interfaces)
	}
	lo, none := facts.Interfaces[0], facts.Interfaces[1]
	if !lo.Exists || !lo.Up || lo.MTU == 0 || lo.Program != nil {
		t.Errorf("loopback %+v, want one that is up and has no program", lo)
	}
	if lo.XDPFeatures != nil && *lo.XDPFeatures&xdpBasic != 0 {
		t.Errorf("loopback has native XDP: features %#x", *lo.XDPFeatures)
	}
	if none.Exists {
		t.Errorf("%s is taken for there", missing)
	}
	if release, err := parseRelease(facts.Kernel); err == nil && !release.before(tellsXDP) && lo.XDPFeatures == nil {
		t.Errorf("kernel %s tells no XDP features", facts.Kernel)
	}
}
