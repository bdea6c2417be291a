// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

const (
	// root is the top of the tree, seen from the folder that "go -C tools" runs in.
	root = ".."
	// stdlib is the name of Go's own packages in SBOMs.
	stdlib = "stdlib"
)

// architectures of releases: linked modules may differ between them.
var architectures = []string{"amd64", "arm64"}

// permitted are the licences, by SPDX identifier, under which a static executable may be
// passed on with the texts that printLicenses prints and nothing else.
var permitted = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

var (
	// licenseFile matches names of files with licences and notices.
	licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([.-].*)?$`)
	// noticeFile matches files among them that hold no licence.
	noticeFile = regexp.MustCompile(`(?i)^(copyright|notice|patents)`)
)

// module is one whose packages are in the executable.
type module struct {
	path, version string
	// files are the paths of licences and notices, from the packages' folders up to the
	// module's own.
	files []string
}

// modules returns the modules of fairlead by path, Go's standard library among them.
func modules() (map[string]*module, error) {
	all := map[string]*module{}
	for _, arch := range architectures {
		cmd := exec.Command("go", "list", "-deps", "-json=Dir,Standard,Module", "./cmd/fairlead")
		cmd.Dir, cmd.Stderr = root, os.Stderr
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for list := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				Dir      string
				Standard bool
				Module   *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := list.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("go list: %w", err)
			}
			switch {
			case p.Standard:
				all[stdlib] = &module{path: stdlib, version: strings.TrimPrefix(runtime.Version(), "go")}
			case !p.Module.Main:
				m := all[p.Module.Path]
				if m == nil {
					m = &module{path: p.Module.Path, version: p.Module.Version}
					all[m.path] = m
				}
				if err := m.add(p.Dir, p.Module.Dir); err != nil {
					return nil, err
				}
			}
		}
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	goroot := strings.TrimSpace(string(out))
	return all, all[stdlib].add(goroot, goroot)
}

// add notes the licences and notices in a folder and those above it, up to top.
func (m *module) add(dir, top string) error {
	for ; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if e.Type().IsRegular() && licenseFile.MatchString(e.Name()) && !strings.HasSuffix(e.Name(), ".go") &&
				!slices.Contains(m.files, path) {
				m.files = append(m.files, path)
			}
		}
		if len(dir) <= len(top) {
			return nil
		}
	}
}

// license returns the SPDX expression of all licences in a module's files.
func (m *module) license() (string, error) {
	ids := map[string]bool{}
	for _, path := range m.files {
		if noticeFile.MatchString(filepath.Base(path)) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		found := licensecheck.Scan(text)
		// The rest are names of authors and headings.
		if found.Percent < 60 {
			return "", fmt.Errorf("%s %s: %s holds no known licence", m.path, m.version, filepath.Base(path))
		}
		for _, match := range found.Match {
			if !match.IsURL {
				ids[match.ID] = true
			}
		}
	}
	if len(ids) == 0 {
		return "", fmt.Errorf("%s %s: no licence", m.path, m.version)
	}
	for id := range ids {
		if !slices.Contains(permitted, id) {
			return "", fmt.Errorf("%s %s: licence %s isn't among %q", m.path, m.version, id, permitted)
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(ids)), " AND "), nil
}

// libbpf is the notice of the headers that BPF programs are compiled with.
const libbpf = `bpf_helpers.h and bpf_endian.h of libbpf, which the BPF programs are compiled with:
LGPL-2.1 OR BSD-2-Clause. Copyright (c) 2015 The Libbpf Authors. All rights reserved.
`

// printLicenses prints the licences of Fairlead, of its BPF programs and of others'
// modules, each text once with the modules that it belongs to.
func printLicenses(w io.Writer) error {
	all, err := modules()
	if err != nil {
		return err
	}
	owners := map[string][]string{} // of each text
	for _, path := range slices.Sorted(maps.Keys(all)) {
		m := all[path]
		if _, err := m.license(); err != nil {
			return err
		}
		owner := m.path + " " + m.version
		for _, file := range m.files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if t := clean(text); !slices.Contains(owners[t], owner) {
				owners[t] = append(owners[t], owner)
			}
		}
	}
	var out strings.Builder
	section := func(title, text string) {
		line := strings.Repeat("=", 80)
		fmt.Fprintf(&out, "%s\n%s\n%s\n\n%s\n", line, title, line, text)
	}
	for _, own := range []struct{ title, file, before string }{
		{"Fairlead: Apache-2.0", "LICENSE", ""},
		{"Fairlead's BPF programs: GPL-2.0-only OR BSD-2-Clause; this is BSD-2-Clause", "LICENSES/BSD-2-Clause.txt", libbpf + "\n"},
		{"Fairlead's BPF programs: GPL-2.0-only OR BSD-2-Clause; this is GPL-2.0-only", "LICENSES/GPL-2.0-only.txt", ""},
	} {
		text, err := os.ReadFile(filepath.Join(root, own.file))
		if err != nil {
			return err
		}
		section(own.title, own.before+clean(text))
	}
	texts := slices.SortedFunc(maps.Keys(owners), func(a, b string) int {
		return strings.Compare(owners[a][0]+a, owners[b][0]+b)
	})
	for _, text := range texts {
		section(strings.Join(owners[text], "\n"), text)
	}
	_, err = io.WriteString(w, out.String())
	return err
}

// clean returns a text without carriage returns and blank lines around it.
func clean(text []byte) string {
	return strings.Trim(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n") + "\n"
}
