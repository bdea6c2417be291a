// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is a kernel module that is ready to be loaded.
type module struct {
	name string
	// object is its ELF file.
	object []byte
}

// load returns the named modules and all that they depend on, each after its
// dependencies.
func (k kernel) load(ctx context.Context, names []string) ([]module, error) {
	var loaded []module
	for _, n := range names {
		var err error
		if loaded, err = k.loadOne(ctx, loaded, n); err != nil {
			return nil, fmt.Errorf("module %s: %w", n, err)
		}
	}
	return loaded, nil
}

// loadOne appends a module to those that it may need, if it isn't among them.
func (k kernel) loadOne(ctx context.Context, loaded []module, name string) ([]module, error) {
	if slices.ContainsFunc(loaded, func(m module) bool { return m.name == name }) {
		return loaded, nil
	}
	path, ok := k.modules[name]
	if !ok {
		return nil, fmt.Errorf("%s has none", filepath.Base(k.image))
	}
	if path == "" {
		return loaded, nil
	}
	object, err := readModule(ctx, path)
	if err != nil {
		return nil, err
	}
	needed, err := dependencies(object)
	if err != nil {
		return nil, err
	}
	for _, n := range needed {
		if loaded, err = k.loadOne(ctx, loaded, n); err != nil {
			return nil, fmt.Errorf("needs module %s: %w", n, err)
		}
	}
	return append(loaded, module{name, object}), nil
}

// readModule returns the ELF file; distributions compress it in several ways.
func readModule(ctx context.Context, path string) ([]byte, error) {
	switch filepath.Ext(path) {
	case ".xz":
		return exec.CommandContext(ctx, "xz", "-dc", path).Output()
	case ".zst":
		return exec.CommandContext(ctx, "zstd", "-dcq", path).Output()
	}
	return os.ReadFile(path)
}

// dependencies reads from a module's own description which others it needs
// (modinfo(8) shows it as "depends").
func dependencies(object []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		names, ok := strings.CutPrefix(string(field), "depends=")
		if ok && names != "" {
			return strings.Split(moduleName(names), ","), nil
		}
	}
	return nil, nil
}
