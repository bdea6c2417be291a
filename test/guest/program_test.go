// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// programs that tests in the guest run, and the packages that hold them.
var (
	programs        = []string{"curl", "ip", "ipvsadm", "nft", "nginx"}
	programPackages = []string{"curl", "iproute2", "ipvsadm", "nftables", "nginx-light"}
)

// anyPackage matches the names of packages that aren't virtual in apt-cache's output.
var anyPackage = regexp.MustCompile(`(?m)^[a-z0-9].*$`)

// addPrograms adds the programs of an architecture to the archive, with the libraries that
// they load. The first call downloads their packages.
func addPrograms(ctx context.Context, to *archive, arch string) error {
	a, unlock, err := openArchives(arch)
	if err != nil {
		return err
	}
	label := "programs-" + arch + "-" + strings.Join(programs, "-") // another list has a folder of its own
	root, err := a.unpacked(ctx, label, anyPackage, programPackages)
	if err := errors.Join(err, unlock()); err != nil {
		return err
	}
	l := loader{files: map[string]string{}, libraries: map[string]bool{}}
	if err := l.index(root); err != nil {
		return err
	}
	for _, name := range programs {
		if err := l.add(to, name); err != nil {
			return fmt.Errorf("program %s: %w", name, err)
		}
	}
	return nil
}

// loader finds the libraries that the dynamic linker would.
type loader struct {
	// files are the paths of programs and libraries by the names of the files.
	files map[string]string
	// libraries were added.
	libraries map[string]bool
}

// index notes the files in the folders for programs and libraries. Where the same name is
// a link too, it's to such a file.
func (l *loader) index(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		dir, name := filepath.Split(strings.TrimPrefix(path, root))
		dir = strings.TrimPrefix(dir, "/usr")
		if !strings.HasPrefix(dir, "/lib") && !strings.HasPrefix(dir, "/bin/") && !strings.HasPrefix(dir, "/sbin/") {
			return nil
		}
		if _, known := l.files[name]; !known || entry.Type().IsRegular() {
			l.files[name] = path
		}
		return nil
	})
}

// add adds a program with its libraries.
func (l *loader) add(to *archive, name string) error {
	object, err := l.read(name)
	if err != nil {
		return err
	}
	to.add("usr/bin/"+name, modeProgram, object)
	return l.addLibraries(to, object)
}

// addLibraries adds the libraries that an ELF file needs, also indirectly, unless they
// have been added. The dynamic linker, whose path is in programs, looks for libraries in
// /lib.
func (l *loader) addLibraries(to *archive, object []byte) error {
	file, err := elf.NewFile(strings.NewReader(string(object)))
	if err != nil {
		return err
	}
	names, err := file.ImportedLibraries()
	if err != nil {
		return err
	}
	paths := map[string]string{}
	if section := file.Section(".interp"); section != nil {
		path, err := section.Data()
		if err != nil {
			return err
		}
		linker := strings.Trim(string(path), "/\x00")
		names = append(names, filepath.Base(linker))
		paths[filepath.Base(linker)] = linker
	}
	slices.Sort(names) // the linker first, which libraries need by its name alone
	for _, name := range names {
		if l.libraries[name] {
			continue
		}
		l.libraries[name] = true
		library, err := l.read(name)
		if err != nil {
			return err
		}
		path := paths[name]
		if path == "" {
			path = "lib/" + name
		}
		to.add(path, modeProgram, library)
		if err := l.addLibraries(to, library); err != nil {
			return fmt.Errorf("library %s: %w", name, err)
		}
	}
	return nil
}

func (l *loader) read(name string) ([]byte, error) {
	path, ok := l.files[name]
	if !ok {
		return nil, fmt.Errorf("%s is in no package", name)
	}
	return os.ReadFile(path)
}
