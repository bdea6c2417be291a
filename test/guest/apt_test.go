// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// errNoPackage says that the distribution has no package of the names.
var errNoPackage = errors.New("the distribution's archive has no such package")

// archives is where packages are unpacked, in the user's cache. Nothing is installed on
// the host.
type archives struct {
	dir  string
	arch string // GOARCH, which is also Debian's name of it
}

// openArchives returns the packages of an architecture. Calls of several processes wait
// for each other until close.
func openArchives(arch string) (a archives, unlock func() error, err error) {
	cache, err := os.UserCacheDir() // $XDG_CACHE_HOME or ~/.cache
	if err != nil {
		return a, nil, err
	}
	a = archives{filepath.Join(cache, "fairlead", "vm"), arch}
	// apt makes folders in its state folder, but not that one.
	if err := os.MkdirAll(a.state(), 0o755); err != nil {
		return a, nil, err
	}
	lock, err := os.Open(a.dir)
	if err != nil {
		return a, nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return a, nil, errors.Join(fmt.Errorf("lock %s: %w", a.dir, err), lock.Close())
	}
	return a, lock.Close, nil
}

// unpacked returns the folder with the unpacked packages whose names match, among those that
// the named packages are or depend on; of several choices of names the first known one. The
// first call downloads them.
func (a archives) unpacked(ctx context.Context, label string, wanted *regexp.Regexp, choices ...[]string) (string, error) {
	root := filepath.Join(a.dir, label)
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	draft, err := os.MkdirTemp(a.dir, "draft-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(draft) // a download that was cut off leaves no root
	err = a.download(ctx, draft, wanted, choices)
	if err != nil {
		// The package lists are missing or older than the archive.
		if updateErr := a.run(ctx, draft, "apt-get", "-qq", "update"); updateErr != nil {
			return "", errors.Join(err, updateErr)
		}
		if err := a.download(ctx, draft, wanted, choices); err != nil {
			return "", err
		}
	}
	files, err := filepath.Glob(filepath.Join(draft, "*.deb"))
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if err := command(ctx, draft, nil, "dpkg-deb", "--extract", f, "unpacked"); err != nil {
			return "", err
		}
	}
	return root, os.Rename(filepath.Join(draft, "unpacked"), root)
}

// download fetches packages into dir. Their names change with every security update, the
// names of the meta packages that depend on them don't.
func (a archives) download(ctx context.Context, dir string, wanted *regexp.Regexp, choices [][]string) error {
	for _, names := range choices {
		args := append(a.options(), "depends", "--recurse", "--important")
		out, err := exec.CommandContext(ctx, "apt-cache", append(args, names...)...).Output()
		packages := wanted.FindAllString(string(out), -1)
		if err != nil || len(packages) == 0 {
			continue
		}
		slices.Sort(packages)
		// apt's own user for downloads could not write to dir.
		args = []string{"apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download"}
		return a.run(ctx, dir, append(args, slices.Compact(packages)...)...)
	}
	return fmt.Errorf("%v for %s: %w", choices, a.arch, errNoPackage)
}

// run runs a command of apt.
func (a archives) run(ctx context.Context, dir string, args ...string) error {
	return command(ctx, dir, nil, slices.Insert(args, 1, a.options()...)...)
}

// options let apt look at another architecture than the host's with package lists of its
// own, but from the host's sources.
func (a archives) options() []string {
	if a.arch == runtime.GOARCH {
		return nil
	}
	return []string{
		"-o", "APT::Architecture=" + a.arch, "-o", "APT::Architectures::=" + a.arch,
		"-o", "Dir::State=" + a.state(), "-o", "Dir::State::status=/dev/null", "-o", "Dir::Cache=" + a.state(),
	}
}

// state is the folder of apt's package lists of another architecture than the host's.
func (a archives) state() string { return filepath.Join(a.dir, "apt-"+a.arch) }
