// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// target is a kernel to test.
type target struct {
	// label names its folder of unpacked packages.
	label string
	// arch is the GOARCH.
	arch string
	// packages are the names that Debian and Ubuntu have for it; the first known one is
	// taken.
	packages []string
}

// The targets are the oldest kernel that the documentation names, a newer one, and one of
// another architecture.
var (
	oldest = target{"linux-amd64", "amd64", []string{"linux-image-amd64", "linux-image-generic"}}
	newest = target{
		"linux-6.12-amd64", "amd64",
		[]string{"linux-image-6.12-amd64", "linux-image-generic-hwe-24.04", "linux-image-generic-hwe-22.04"},
	}
	arm = target{"linux-arm64", "arm64", []string{"linux-image-arm64", "linux-image-generic"}}
)

// kernel is an unpacked kernel of the host's distribution.
type kernel struct {
	// image is the file that a boot loader loads.
	image string
	// modules holds the files of all modules by their names, "" for those that are part
	// of the image.
	modules map[string]string
}

// kernelPackages are those that hold an image and its modules.
var kernelPackages = regexp.MustCompile(`(?m)^linux-(image|modules)-[0-9].*$`)

// kernel returns the target's kernel. The first call downloads about 70 MB.
func (t target) kernel(ctx context.Context) (kernel, error) {
	a, unlock, err := openArchives(t.arch)
	if err != nil {
		return kernel{}, err
	}
	var choices [][]string
	for _, p := range t.packages {
		choices = append(choices, []string{p})
	}
	root, err := a.unpacked(ctx, t.label, kernelPackages, choices...)
	if err := errors.Join(err, unlock()); err != nil {
		return kernel{}, err
	}
	return openKernel(root)
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
		if err == nil && filepath.Base(path) == "modules.builtin" {
			return k.addBuiltIn(path)
		}
		if name, _, isModule := strings.Cut(filepath.Base(path), ".ko"); isModule {
			k.modules[moduleName(name)] = path
		}
		return err
	})
	return k, err
}

// addBuiltIn reads which modules are part of the image, a file name each.
func (k kernel) addBuiltIn(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		k.modules[moduleName(strings.TrimSuffix(filepath.Base(lines.Text()), ".ko"))] = ""
	}
	return lines.Err()
}

// moduleName is a module's name as the kernel writes it; files may have hyphens.
func moduleName(file string) string { return strings.ReplaceAll(file, "-", "_") }
