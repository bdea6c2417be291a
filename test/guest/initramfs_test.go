// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// firstProcess is the name, in the guest's root directory, of what the kernel starts.
const firstProcess = "init"

// pack makes the initial RAM file system of a guest in dir: the package's tests, which are
// the first process, and the modules. It returns the file's path.
func pack(ctx context.Context, k kernel, pkg string, modules []string, dir string) (string, error) {
	binary := filepath.Join(dir, firstProcess)
	err := command(ctx, "", []string{"CGO_ENABLED=0"}, "go", "test", "-c", "-tags", "guest", "-ldflags", "-s -w", "-o", binary, pkg)
	if err != nil {
		return "", err
	}
	if err := openSources(ctx, pkg); err != nil {
		return "", err
	}
	loaded, err := k.load(ctx, modules)
	if err != nil {
		return "", err
	}
	var a archive
	program, err := os.ReadFile(binary)
	if err != nil {
		return "", err
	}
	a.add(firstProcess, modeProgram, program)
	a.add("modules", modeDirectory, nil)
	for i, m := range loaded {
		// They are loaded in the order of their names.
		a.add(fmt.Sprintf("modules/%02d-%s.ko", i, m.name), modeFile, m.object)
	}
	path := filepath.Join(dir, "initramfs")
	return path, os.WriteFile(path, a.finish(), 0o600)
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

// File modes, with the type of the file as in stat(2).
const (
	modeFile      = 0o100644
	modeProgram   = 0o100755
	modeDirectory = 0o040755
)

// archive is a file in cpio's "newc" format, which the kernel unpacks at boot
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	bytes.Buffer
	entries int
}

// add appends a file; its directory must have been added before.
func (a *archive) add(name string, mode int, content []byte) {
	a.entries++
	const links, nameEnd = 1, 1
	header := []int{
		a.entries, mode, 0, 0, links, 0, len(content), // inode, mode, user, group, links, time, size
		0, 0, 0, 0, len(name) + nameEnd, 0, // devices, length of the name, no checksum
	}
	a.WriteString("070701")
	for _, field := range header {
		fmt.Fprintf(a, "%08X", field)
	}
	a.WriteString(name + "\x00")
	a.align()
	a.Write(content)
	a.align()
}

// align fills up to a multiple of four bytes.
func (a *archive) align() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}

// finish returns the whole archive with the entry that ends it.
func (a *archive) finish() []byte {
	a.add("TRAILER!!!", 0, nil)
	return a.Bytes()
}
