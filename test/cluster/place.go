// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// placePrefix begins the names of clusters' folders below the folder for temporary
// files. A folder without a lock was left by a killed run.
const placePrefix = "fairlead-cluster-"

// newPlace makes a folder for a cluster's files, which is removed after the test,
// and removes those that killed runs left.
func newPlace(t testing.TB) string {
	t.Helper()
	if err := sweep(); err != nil {
		t.Log(err) // leftovers of others don't fail this test
	}
	dir, folder, err := claim()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vacate(dir); err != nil {
			t.Error(err)
		}
		folder.Close() // gives the lock back
	})
	return dir
}

// claim makes a folder and locks it. In between another run may take it for a
// leftover and remove it.
func claim() (string, *os.File, error) {
	var errs []error
	for range 10 {
		dir, err := os.MkdirTemp("", placePrefix)
		if err != nil {
			return "", nil, err
		}
		folder, err := lock(dir)
		if err == nil {
			if _, err = os.Stat(dir); err == nil {
				return dir, folder, nil
			}
			folder.Close()
		}
		errs = append(errs, err)
	}
	return "", nil, errors.Join(errs...)
}

// lock says that the folder is in use, until the file is closed or the process ends.
func lock(dir string) (*os.File, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		folder.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return folder, nil
}

// sweep removes the clusters of runs that were killed.
func sweep() error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), placePrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		folder, err := lock(dir)
		if err != nil {
			continue // in use, or gone
		}
		err = vacate(dir)
		folder.Close()
		if err != nil {
			return fmt.Errorf("leftover %s: %w", dir, err)
		}
	}
	return nil
}

// vacate removes the remains of a cluster: control groups, which have the folder's
// name, and files.
func vacate(dir string) error {
	return errors.Join(removeCgroups(filepath.Base(dir)+"-*"), os.RemoveAll(dir))
}
