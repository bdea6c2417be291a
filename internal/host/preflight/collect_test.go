// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
)

// TestCollect reads the machine that runs the test: what is there can't be
// foretold, but the loopback is, and missing facts must be distinguishable.
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
	if release, err := parseRelease(facts.Kernel); err == nil && !release.before(reportsXDP) && lo.XDPFeatures == nil {
		t.Errorf("kernel %s reports no XDP features", facts.Kernel)
	}
}

// The larger of an interface's own filter and that for all counts, and a loose
// one therefore undoes a strict one.
func TestReversePath(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, c := range []struct {
		all, own string
		want     ReversePath
	}{{"0", "0", Off}, {"1", "0", Strict}, {"0", "1", Strict}, {"1", "2", Loose}, {"2", "1", Loose}} {
		for name, value := range map[string]string{"all": c.all, "lo": c.own} {
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte(value), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		facts, err := Collect([]string{"lo"}, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if got := facts.Interfaces[0].ReversePath; got != c.want {
			t.Errorf("all %s, lo %s: %d, want %d", c.all, c.own, got, c.want)
		}
	}
}
