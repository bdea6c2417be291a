// SPDX-License-Identifier: Apache-2.0

package binary

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Build returns the path of the binary in the cache after having built it if it
// isn't there, which takes minutes and is said, with what go prints, to log. Two at
// once build it once, and what is interrupted leaves no half of one.
func Build(ctx context.Context, log io.Writer) (string, error) {
	dir, err := source()
	if err != nil {
		return "", err
	}
	release, err := releaseOf(dir)
	if err != nil {
		return "", err
	}
	path, err := release.path()
	if err != nil {
		return "", err
	}
	if err := release.build(ctx, dir, path, log); err != nil {
		return "", fmt.Errorf("kubernetes %s: %w", release.version, err)
	}
	return path, nil
}

func (r release) build(ctx context.Context, dir, path string, log io.Writer) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close() // gives the lock back
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", folder.Name(), err)
	}
	if _, err := os.Stat(path); err == nil {
		return nil // by who had the lock before
	}
	fmt.Fprintf(log, "building Kubernetes %s for tests, once: some minutes\n", r.version)
	part := path + ".part"
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", r.linkFlags(), "-o", part, ".")
	build.Dir, build.Stdout, build.Stderr = dir, log, log
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if err := build.Run(); err != nil {
		return fmt.Errorf("go build in %s: %w", dir, err)
	}
	return os.Rename(part, path)
}

// linkFlags tell the binary its version, without which clients don't know what to
// make of it.
func (r release) linkFlags() string {
	const variable = "k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(r.version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := []string{"-s", "-w"}
	for _, v := range [][2]string{{"gitVersion", r.version}, {"gitMajor", major}, {"gitMinor", minor}, {"gitTreeState", "clean"}} {
		flags = append(flags, "-X", variable+v[0]+"="+v[1])
	}
	return strings.Join(flags, " ")
}
