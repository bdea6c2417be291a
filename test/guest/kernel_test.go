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
	"strings"

	"golang.org/x/sys/unix"
)

// kernel is an unpacked kernel of the host's distribution.
type kernel struct {
	// image is what a boot loader loads.
	image string
	// modules holds the files of all modules by their names.
	modules map[string]string
}

// installedKernel returns the kernel in the user's cache. The first call
// downloads it there, about 70 MB; nothing is installed on the host. Calls of
// several processes wait for each other.
func installedKernel(ctx context.Context) (kernel, error) {
	cache, err := os.UserCacheDir() // $XDG_CACHE_HOME or ~/.cache
	if err != nil {
		return kernel{}, err
	}
	dir := filepath.Join(cache, "fairlead", "vm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return kernel{}, err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return kernel{}, err
	}
	defer lock.Close() // closing gives the lock back
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return kernel{}, fmt.Errorf("lock %s: %w", dir, err)
	}
	root := filepath.Join(dir, "kernel")
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		if err := install(ctx, root); err != nil {
			return kernel{}, fmt.Errorf("guest kernel: %w", err)
		}
	}
	return openKernel(root)
}

// install unpacks the distribution's newest kernel as root. A download that was
// cut off leaves no root.
func install(ctx context.Context, root string) error {
	draft, err := os.MkdirTemp(filepath.Dir(root), "draft-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(draft)
	if err := download(ctx, draft); err != nil {
		// The package lists are missing or older than the archive.
		if updateErr := command(ctx, draft, nil, "apt-get", "-qq", "update"); updateErr != nil {
			return errors.Join(err, updateErr)
		}
		if err := download(ctx, draft); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(draft, "*.deb"))
	if err != nil {
		return err
	}
	for _, p := range packages {
		if err := command(ctx, draft, nil, "dpkg-deb", "--extract", p, "unpacked"); err != nil {
			return err
		}
	}
	return os.Rename(filepath.Join(draft, "unpacked"), root)
}

// download fetches the packages of the kernel into dir.
func download(ctx context.Context, dir string) error {
	packages, err := kernelPackages(ctx)
	if err != nil {
		return err
	}
	// Its own user for downloads could not write to dir.
	args := []string{"apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download"}
	return command(ctx, dir, nil, append(args, packages...)...)
}

// kernelPackages names the packages that hold the distribution's kernel and its
// modules. The names change with every security update, those of the meta
// packages of Debian and of Ubuntu don't.
func kernelPackages(ctx context.Context) ([]string, error) {
	holds := regexp.MustCompile(`(?m)^linux-(image|modules)-[0-9].*$`)
	for _, meta := range []string{"linux-image-amd64", "linux-image-generic"} {
		out, err := exec.CommandContext(ctx, "apt-cache", "depends", "--recurse", "--important", meta).Output()
		if packages := holds.FindAllString(string(out), -1); err == nil && len(packages) > 0 {
			return packages, nil
		}
	}
	return nil, errors.New("apt knows no kernel package")
}

// openKernel finds image and modules in an unpacked package.
func openKernel(root string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil {
		return kernel{}, err
	}
	if len(images) != 1 {
		return kernel{}, fmt.Errorf("%s: %d kernels, want 1", root, len(images))
	}
	k := kernel{image: images[0], modules: map[string]string{}}
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if name, _, isModule := strings.Cut(filepath.Base(path), ".ko"); isModule {
			k.modules[moduleName(name)] = path
		}
		return err
	})
	return k, err
}

// moduleName is a module's name as the kernel writes it; files may have hyphens.
func moduleName(file string) string { return strings.ReplaceAll(file, "-", "_") }
