// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Collect reads the facts about this machine, this process and the named
// interfaces of the current network namespace. Pins is the directory in which
// an agent would pin; it need not exist.
func Collect(interfaces []string, pins string) (Facts, error) {
	f := Facts{BPFFS: BPFFS{Dir: pins}}
	var err error
	if f.Kernel, err = KernelRelease(); err != nil {
		return f, fmt.Errorf("kernel release: %w", err)
	}
	if f.Capabilities, err = effectiveCapabilities(); err != nil {
		return f, fmt.Errorf("capabilities: %w", err)
	}
	if f.Memlock, err = lockedMemory(); err != nil {
		return f, fmt.Errorf("memory lock: %w", err)
	}
	if f.BPFFS.Mounted, err = onBPFFS(pins); err != nil {
		return f, fmt.Errorf("bpffs: %w", err)
	}
	if f.BPFFS.Known, err = knowsBPFFS(); err != nil {
		return f, fmt.Errorf("bpffs: %w", err)
	}
	_, missing := os.Stat("/sys/kernel/btf/vmlinux")
	f.BTF = missing == nil
	// Root of a user namespace may not read it: that is a finding, no error.
	if text, err := os.ReadFile("/proc/sys/net/core/bpf_jit_enable"); err == nil {
		f.JIT = strings.TrimSpace(string(text))
	}
	f.Interfaces, err = collectInterfaces(interfaces)
	return f, err
}

// KernelRelease is the running kernel's, for example "6.1.0-18-amd64".
func KernelRelease() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}

// effectiveCapabilities reads CapEff of proc_pid_status(5), a hexadecimal mask.
func effectiveCapabilities() (uint64, error) {
	const file, field = "/proc/self/status", "CapEff:"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, field); found {
			return strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
		}
	}
	return 0, fmt.Errorf("%s: no %s", file, field)
}

func lockedMemory() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return 0, err
	}
	return limit.Cur, nil // RLIM_INFINITY is NoLimit
}

// onBPFFS reports whether dir, or the nearest folder above it that exists, is
// in a BPF file system.
func onBPFFS(dir string) (bool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	for {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if !errors.Is(err, fs.ErrNotExist) {
			return uint64(s.Type) == unix.BPF_FS_MAGIC, wrapPath(dir, err)
		}
		dir = filepath.Dir(dir) // ends at the root, which exists
	}
}

func wrapPath(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

func knowsBPFFS() (bool, error) {
	text, err := os.ReadFile("/proc/filesystems")
	return bytes.Contains(text, []byte("\tbpf\n")), err
}
