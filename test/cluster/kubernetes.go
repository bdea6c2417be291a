// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// kubernetesVariable is the environment variable that names another binary than the
// cached one.
const kubernetesVariable = "FAIRLEAD_KUBERNETES"

// kubernetesModule is a Go module of its own, all components of Kubernetes in one
// executable.
const kubernetesModule = "test/kubeall"

// Kubernetes returns the path of the Kubernetes that tests run. The working directory is
// in the repository, as in tests.
func Kubernetes() (string, error) {
	path := os.Getenv(kubernetesVariable)
	if path == "" {
		r, err := currentRelease()
		if err != nil {
			return "", err
		}
		if path, err = r.path(); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("kubernetes is not built (\"make kubernetes\" does it): %w", err)
	}
	return path, nil
}

// BuildKubernetes builds the Kubernetes that tests run, unless it is in a cache outside of
// the clone, where later runs and other clones find it, and returns its path. A build takes
// minutes; log receives the output of go. Concurrent calls build once, and an interrupted
// build leaves no partial binary.
func BuildKubernetes(ctx context.Context, log io.Writer) (string, error) {
	r, err := currentRelease()
	if err != nil {
		return "", err
	}
	path, err := r.path()
	if err != nil {
		return "", err
	}
	if err := r.build(ctx, path, log); err != nil {
		return "", fmt.Errorf("kubernetes %s: %w", r.version, err)
	}
	return path, nil
}

// InRepository returns the path of a file or folder of the repository, which the working
// directory is in.
func InRepository(name string) (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s: not in %s or a folder above it", name, start)
		}
	}
}

// release is one version of the binary.
type release struct {
	// dir has the sources.
	dir string
	// version of Kubernetes, as "v1.36.3".
	version string
	// sum differs for each set of sources of a version.
	sum string
}

func currentRelease() (release, error) {
	dir, err := InRepository(kubernetesModule)
	if err != nil {
		return release{}, err
	}
	return releaseOf(dir)
}

var requiredKubernetes = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (\S+)$`)

// releaseOf reads the release that the sources in the folder would build.
func releaseOf(dir string) (release, error) {
	sum, err := sumOf(dir, "go.mod", "go.sum", "main.go")
	if err != nil {
		return release{}, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return release{}, err
	}
	version := requiredKubernetes.FindSubmatch(text)
	if version == nil {
		return release{}, errors.New(dir + ": go.mod requires no k8s.io/kubernetes")
	}
	return release{dir: dir, version: string(version[1]), sum: sum}, nil
}

// sumOf is a short hash of files of a folder.
func sumOf(dir string, names ...string) (string, error) {
	hash := sha256.New()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s\n%s", name, text)
	}
	return fmt.Sprintf("%.6x", hash.Sum(nil)), nil
}

// path is where the release is in the cache, there or not.
func (r release) path() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "fairlead", "kubernetes", r.version+"-"+r.sum, "kubeall"), nil
}

func (r release) build(ctx context.Context, path string, log io.Writer) error {
	return buildOnce(path, func(part string) error {
		fmt.Fprintf(log, "building Kubernetes %s for tests, once: some minutes\n", r.version)
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", r.linkFlags(), "-o", part, ".")
		build.Dir, build.Stdout, build.Stderr = r.dir, log, log
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if err := build.Run(); err != nil {
			return fmt.Errorf("go build in %s: %w", r.dir, err)
		}
		return nil
	})
}

// buildOnce builds an executable, unless there is one. Concurrent calls build once, and an
// interrupted build leaves no partial executable.
func buildOnce(path string, build func(part string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close() // releases the lock
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", folder.Name(), err)
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	part := path + ".part"
	if err := build(part); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// linkFlags set the version of the binary, which clients need.
func (r release) linkFlags() string {
	const variable = " -X k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(r.version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return "-s -w" + variable + "gitVersion=" + r.version + variable + "gitMajor=" + major +
		variable + "gitMinor=" + minor + variable + "gitTreeState=clean"
}
