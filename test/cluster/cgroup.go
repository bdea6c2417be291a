// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// cgroupRoot is where control groups are mounted: one tree of version 2, or a
// folder for each hierarchy of version 1.
const cgroupRoot = "/sys/fs/cgroup"

// hierarchies returns the names of the hierarchies of version 1; none means that
// there is one tree of version 2.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return nil, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: nothing is mounted there", cgroupRoot)
	}
	return names, nil
}

// makeCgroups makes a control group in every hierarchy and returns the files
// through which a process joins them.
func makeCgroups(name string) ([]string, error) {
	names, err := hierarchies()
	if err != nil {
		return nil, err
	}
	if names == nil {
		names = []string{""}
	}
	var join []string
	for _, h := range names {
		dir := filepath.Join(cgroupRoot, h, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		if h == "cpuset" {
			if err := inheritProcessors(dir); err != nil {
				return nil, err
			}
		}
		join = append(join, filepath.Join(dir, "cgroup.procs"))
	}
	return join, nil
}

// inheritProcessors: a new group of version 1 has no processors, and no
// process can join it.
func inheritProcessors(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(dir, "..", file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes all control groups whose names match the pattern, with
// those below. Their processes have been killed, which the kernel may yet have to
// notice.
func removeCgroups(pattern string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return poll(ctx, func() error {
		var errs []error
		for _, p := range []string{pattern, filepath.Join("*", pattern)} {
			groups, err := filepath.Glob(filepath.Join(cgroupRoot, p))
			errs = append(errs, err)
			for _, g := range groups {
				errs = append(errs, removeTree(g))
			}
		}
		return errors.Join(errs...)
	})
}

// removeTree removes a control group and those below, in which files can't be
// removed.
func removeTree(group string) error {
	var dirs []string
	err := filepath.WalkDir(group, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return ignoreGone(err)
	})
	for _, dir := range slices.Backward(dirs) {
		err = errors.Join(err, ignoreGone(os.Remove(dir)))
	}
	return err
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
