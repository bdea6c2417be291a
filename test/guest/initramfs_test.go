// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// accounts of root and of nginx's workers.
const accounts = "root:x:0:0::/root:/bin/false\nwww-data:x:33:33::/:/bin/false\n"

// pack writes the initial RAM file system of a guest: first process, its tests' packages
// and the project's executables, which build has compiled, the distribution's programs, and the
// modules of the kernel.
func pack(ctx context.Context, file string, b built, g guest, k kernel, modules []string) error {
	loaded, err := k.load(ctx, modules)
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	buffered := bufio.NewWriter(f)
	a := &archive{out: buffered, directories: map[string]bool{}}
	a.addFile("init", modeProgram, b.path("boot"))
	a.addFile("usr/bin/fairlead", modeProgram, b.path("fairlead"))
	a.addFile("usr/bin/fairlab", modeProgram, b.path("fairlab"))
	var plan strings.Builder
	arguments := slices.Concat(testArguments, []string{"-test.run=" + g.tests, "-test.skip=" + skipped + g.skip})
	if end, limited := ctx.Deadline(); limited {
		arguments = append(arguments, fmt.Sprintf("-test.timeout=%.0fs", time.Until(end.Add(-endTime)).Seconds()))
	}
	for _, pkg := range g.packages {
		program := path.Join(pkg, path.Base(pkg)+".test")
		a.addFile(program, modeProgram, b.path(testBinary(pkg)))
		fmt.Fprintf(&plan, "%s /%s %s\n", pkg, program, strings.Join(arguments, " "))
	}
	// A test reads the compiled programs in the folders next to its own.
	const top = "../../"
	objects, err := filepath.Glob(top + "internal/dataplane/*/*/*.o")
	if err != nil {
		return err
	}
	for _, name := range objects {
		a.addFile(strings.TrimPrefix(name, top), modeFile, name)
	}
	a.add("plan", modeFile, []byte(plan.String()))
	for i, m := range loaded {
		// They are loaded in the order of their names.
		a.add(fmt.Sprintf("modules/%03d-%s.ko", i, m.name), modeFile, m.object)
	}
	a.add("etc/passwd", modeFile, []byte(accounts))
	a.add("etc/group", modeFile, []byte("root:x:0:\nwww-data:x:33:\n"))
	if err := addPrograms(ctx, a, b.arch); err != nil {
		return err
	}
	a.add("TRAILER!!!", 0, nil) // ends the archive
	return errors.Join(a.err, buffered.Flush())
}

// File modes, with the type of the file as in stat(2).
const (
	modeFile      = 0o100644
	modeProgram   = 0o100755
	modeDirectory = 0o040755
)

// archive writes a file in cpio's "newc" format, which the kernel unpacks at boot
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	out         io.Writer
	directories map[string]bool
	entries     int
	err         error // the first one
}

// addFile adds a file of the host.
func (a *archive) addFile(name string, mode int, source string) {
	content, err := os.ReadFile(source)
	if err != nil {
		a.err = errors.Join(a.err, err)
		return
	}
	a.add(name, mode, content)
}

// add adds a file, and its directories before it.
func (a *archive) add(name string, mode int, content []byte) {
	if dir := path.Dir(name); dir != "." && !a.directories[dir] {
		a.directories[dir] = true
		a.add(dir, modeDirectory, nil)
	}
	a.entries++
	const links, nameEnd = 1, 1
	header := "070701"
	for _, field := range []int{
		a.entries, mode, 0, 0, links, 0, len(content), // inode, mode, user, group, links, time, size
		0, 0, 0, 0, len(name) + nameEnd, 0, // devices, length of the name, no checksum
	} {
		header += fmt.Sprintf("%08X", field)
	}
	a.write([]byte(header + name + "\x00"))
	a.write(content)
}

// write writes a part and fills up to a multiple of four bytes.
func (a *archive) write(part []byte) {
	padding := make([]byte, -len(part)&3)
	for _, bytes := range [][]byte{part, padding} {
		if _, err := a.out.Write(bytes); err != nil {
			a.err = errors.Join(a.err, err)
		}
	}
}
