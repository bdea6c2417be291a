// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// modulePath is the prefix of the module's packages.
const modulePath = "fairlead.io/fairlead/"

// built has the binaries for an architecture.
type built struct {
	arch string
	dir  string
}

func (b built) path(name string) string { return filepath.Join(b.dir, name) }

// testBinary is the name of a package's test binary.
func testBinary(pkg string) string { return strings.ReplaceAll(pkg, "/", "-") + ".test" }

// build compiles the tests of packages, by their paths in the module, with the build tag
// "guest", the first process and the project's executables to static binaries in dir.
func build(ctx context.Context, arch, dir string, packages []string) (built, error) {
	b := built{arch, dir}
	env := []string{"CGO_ENABLED=0", "GOARCH=" + arch}
	const small = "-ldflags=-s -w"
	err := command(ctx, "", env, "go", "build", small, "-o", dir+"/",
		modulePath+"test/guest/boot", modulePath+"cmd/fairlead", modulePath+"cmd/fairlab")
	if err != nil {
		return b, err
	}
	for _, pkg := range packages {
		err := command(ctx, "", env, "go", "test", "-c", "-tags", "guest", small, "-o", b.path(testBinary(pkg)), modulePath+pkg)
		if err != nil {
			return b, err
		}
		if err := openSources(ctx, modulePath+pkg); err != nil {
			return b, err
		}
	}
	return b, openSources(ctx, modulePath+"cmd/fairlead")
}

// openSources opens the folders of this module that the package is built
// from. The go command notes it: with a change there, the result of the test
// that runs a guest is taken from its cache no more.
func openSources(ctx context.Context, pkg string) error {
	const inModule = "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}"
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "-tags", "guest", "-f", inModule, pkg).Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for dir := range strings.FieldsSeq(string(out)) {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
