// SPDX-License-Identifier: Apache-2.0

// Package binary finds and builds the Kubernetes that tests run: test/kubeall, all
// components in one executable. It is built once for every version into a cache
// outside the clone, where later runs and other clones find it.
package binary

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Override is the environment variable that names another binary than that of the
// cache.
const Override = "FAIRLEAD_KUBERNETES"

// module is where the source is, below the root of the repository, and sources are
// the files that say all that goes into the binary.
const module = "test/kubeall"

var sources = []string{"go.mod", "go.sum", "main.go"}

// Find returns the path of the binary, which is there. The working directory is
// somewhere in the repository, as that of tests is.
func Find() (string, error) {
	path := os.Getenv(Override)
	if path == "" {
		dir, err := source()
		if err != nil {
			return "", err
		}
		release, err := releaseOf(dir)
		if err != nil {
			return "", err
		}
		if path, err = release.path(); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("kubernetes is not built (\"make kubernetes\" does it): %w", err)
	}
	return path, nil
}

// source returns the folder of the module, looking for it upwards from the working
// directory.
func source() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, module, "go.mod"))
		if err == nil {
			return filepath.Join(dir, module), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s: no folder above %s has it: %w", module, start, err)
		}
	}
}

// release is one version of the binary.
type release struct {
	// version is that of Kubernetes, as "v1.36.3".
	version string
	// sum tells apart what is built of the same version.
	sum string
}

// releaseOf reads what the sources in the folder would build.
func releaseOf(dir string) (release, error) {
	hash := sha256.New()
	for _, name := range sources {
		if err := add(hash, dir, name); err != nil {
			return release{}, err
		}
	}
	version, err := kubernetesVersion(filepath.Join(dir, "go.mod"))
	const digits = 12
	return release{version: version, sum: hex.EncodeToString(hash.Sum(nil))[:digits]}, err
}

func add(w io.Writer, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(w, "%s\n", name)
	_, err = io.Copy(w, f)
	return err
}

// kubernetesVersion is the one that go.mod requires.
func kubernetesVersion(gomod string) (string, error) {
	f, err := os.Open(gomod)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 2 && fields[0] == "k8s.io/kubernetes" {
			return fields[1], nil
		}
	}
	return "", errors.Join(fmt.Errorf("%s: requires no k8s.io/kubernetes", gomod), lines.Err())
}

// path is where the release is in the cache, there or not.
func (r release) path() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "fairlead", "kubernetes", r.version+"-"+r.sum, "kubeall"), nil
}
