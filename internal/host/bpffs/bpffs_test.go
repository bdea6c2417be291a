// SPDX-License-Identifier: Apache-2.0

package bpffs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A node may be called by its full host name. The error for a folder that a user has named has
// its path and the reason.
func TestNamesWithDots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a BPF file system takes root")
	}
	dir := filepath.Join(Root, fmt.Sprintf("fairlead-bpffs-test-%d", os.Getpid()))
	if err := Mount(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"lb1", "lb1.example.com", "ip-10-0-0-1.eu-west-1.compute.internal"} {
		folder := filepath.Join(dir, FileName(name))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if in, err := In(folder); !in || err != nil {
			t.Errorf("%s: in a BPF file system: %t, %v", name, in, err)
		}
		if got := NameOf(filepath.Base(folder)); got != name {
			t.Errorf("%s: the name of the folder is read as %s", name, got)
		}
	}
	if FileName("lb1") != "lb1" {
		t.Error("a name without dots has to stay, as former agents have used it")
	}
	path := filepath.Join(dir, "lb1.example.com")
	if err := Mount(path); err == nil || !strings.Contains(err.Error(), path+": a BPF file system refuses names with a dot") {
		t.Errorf("error %v, want one with the path and the reason", err)
	}
}
