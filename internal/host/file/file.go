// SPDX-License-Identifier: Apache-2.0

// Package file reads files that other programs may be writing at that moment. Whatever follows files uses it.
package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrWriter is in the chain of the error for a file that a process has open for writing.
var ErrWriter = errors.New("a program has it open for writing: it is read when that is closed")

// Read returns the content of a file that no process has open for writing.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := Lease(f); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// Lease returns ErrWriter if a process has the file open for writing. Otherwise those that open it for writing
// wait until f is closed. Leases take the file's owner or CAP_LEASE, and network file systems have none: the
// file is read as it is then.
func Lease(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if !errors.Is(err, unix.EAGAIN) {
		return nil
	}
	var s unix.Statfs_t
	remote := []int64{unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC}
	if err := unix.Fstatfs(int(f.Fd()), &s); err == nil && slices.Contains(remote, s.Type) {
		return nil // they answer this to all
	}
	return fmt.Errorf("%s: %w", f.Name(), ErrWriter)
}
