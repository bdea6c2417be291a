// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// bpfRoot is where every distribution mounts the BPF file system.
const bpfRoot = "/sys/fs/bpf"

// mountBPF makes sure that dir lies in a BPF file system: it mounts one at its
// usual place if there is none, as systemd does.
func mountBPF(dir string) error {
	if inBPF(dir) {
		return nil
	}
	if dir != bpfRoot && !strings.HasPrefix(dir, bpfRoot+"/") {
		return fmt.Errorf("pin directory %s is not in a BPF file system", dir)
	}
	if err := unix.Mount("bpf", bpfRoot, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount the BPF file system on %s: %w", bpfRoot, err)
	}
	return nil
}

// inBPF looks at dir or, if it doesn't exist yet, at the nearest folder above.
func inBPF(dir string) bool {
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(dir, &fs)
		switch {
		case err == nil:
			return fs.Type == unix.BPF_FS_MAGIC
		case !errors.Is(err, os.ErrNotExist) || dir == "/":
			return false
		}
		dir = filepath.Dir(dir)
	}
}
