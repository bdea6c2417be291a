// SPDX-License-Identifier: Apache-2.0

// Package bpffs finds and mounts the BPF file system, in which programs, links and maps are pinned.
package bpffs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is where every distribution mounts the BPF file system.
const Root = "/sys/fs/bpf"

// Mount makes sure that dir lies in a BPF file system: it mounts one at Root if there is none, as
// systemd does.
func Mount(dir string) error {
	if in, err := In(dir); in || err != nil {
		return err
	}
	if dir != Root && !strings.HasPrefix(dir, Root+"/") {
		return fmt.Errorf("pin directory %s is not in a BPF file system", dir)
	}
	if err := unix.Mount("bpf", Root, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount the BPF file system on %s: %w", Root, err)
	}
	return nil
}

// FileName returns the name of the file or folder for an interface or a node. The kernel refuses
// dots in names there. A colon takes their place, which neither of these names has.
func FileName(name string) string { return strings.ReplaceAll(name, ".", ":") }

// NameOf returns the name from which FileName made the name of a file.
func NameOf(file string) string { return strings.ReplaceAll(file, ":", ".") }

// In reports whether dir, or the nearest folder above it that exists, is in a BPF file system.
func In(dir string) (bool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	for {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if errors.Is(err, unix.EPERM) && strings.Contains(filepath.Base(dir), ".") {
			return false, fmt.Errorf("%s: a BPF file system refuses names with a dot: %w", dir, err)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return uint64(s.Type) == unix.BPF_FS_MAGIC, err
		}
		dir = filepath.Dir(dir) // ends at the root, which exists
	}
}
