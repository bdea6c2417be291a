// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// program is the file name of the balancer's compiled BPF programs.
const program = "balancer_bpfel.o"

// provider has the package for OpenStack's Octavia, in Python.
const provider = "octavia/src"

// measures lists the code that each report is about: programs by their file name, and
// packages by their folders, with the folders below them.
var measures = map[string][]string{
	"packet":     {program},
	"forward":    {program},
	"http":       {program},
	"churn":      {program, "internal/dataplane/xdp"},
	"flood":      {program},
	"limit":      {program},
	"latency":    {program},
	"ecmp":       {"internal/bgp"},
	"health":     {"internal/health"},
	"kubernetes": {"internal/source/kube", "internal/controller"},
	"api":        {"internal/apiserver", "internal/source/kube", "internal/controller"},
	"openstack":  {provider, "internal/apiserver", "internal/source/api"},
	// By tests, with -reports (package measured).
	"pods":      {"internal/podroute"},
	"container": {"internal/bgp"},
	"sites":     {"internal/bgp"},
	"cloud":     {"internal/routehook"},
	"vrrp":      {"internal/bgp"},
}

// CommittedReport is a report of the tree.
type CommittedReport struct {
	Report
	// Stale explains why the report has to be measured again; empty: it is current.
	Stale string
}

// CommittedReports reads docs/reports below a root. A report is current if the code that
// its bench measures has the digests that the report holds.
func CommittedReports(root string) ([]CommittedReport, error) {
	files, err := filepath.Glob(filepath.Join(root, "docs/reports/*.json"))
	if err != nil {
		return nil, err
	}
	var all []CommittedReport
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var c CommittedReport
		if err := json.Unmarshal(text, &c.Report); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if c.Stale, err = staleness(root, &c.Report); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// staleness explains why a report isn't current, or returns nothing.
func staleness(root string, r *Report) (string, error) {
	parts, known := measures[r.Bench]
	if !known {
		return "", fmt.Errorf("unknown bench %q", r.Bench)
	}
	if len(r.Measured) == 0 {
		return "", errors.New("report without digests of what it measured")
	}
	switch {
	case r.Quick:
		return "measured with --quick", nil
	case r.Incomplete:
		return "incomplete", nil
	}
	now, err := digests(root, parts)
	if err != nil {
		return "", err
	}
	changed := slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return now[part] == r.Measured[part] })
	if len(changed) > 0 {
		return "changed: " + strings.Join(changed, ", "), nil
	}
	return "", nil
}

// Digests returns the digests of the code that a bench measures, for its report. They are
// from the work tree at root, which may differ in docs only from the commit, the
// measuring binary's.
func Digests(root, bench, commit string) (map[string]string, error) {
	if _, err := hex.DecodeString(commit); err != nil {
		return nil, fmt.Errorf("commit %s: not a clean build of a commit", commit)
	}
	for _, args := range [][]string{{"diff", "--name-only", commit}, {"ls-files", "--others", "--exclude-standard"}} {
		git := exec.Command("git", slices.Concat([]string{"-C", root}, args, []string{"--", ":!docs"})...)
		out, err := git.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(out))
		}
		if file, _, changed := bytes.Cut(out, []byte("\n")); changed {
			return nil, fmt.Errorf("commit %s: %s differs in the work tree", commit, file)
		}
	}
	return digests(root, measures[bench])
}

// digests returns the digest of each part: of the instructions of programs, of Go
// without comments, formatting and tests, and of Python. Names of files don't count.
func digests(root string, parts []string) (map[string]string, error) {
	tree, sums := os.DirFS(root), map[string][]string{}
	add := func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		for _, part := range parts {
			digest := goDigest
			switch {
			case path.Base(name) == part:
				digest = programDigest
			case !strings.HasPrefix(name, part+"/"):
				continue
			case path.Ext(name) == ".py":
				digest = textDigest
			case path.Ext(name) != ".go", strings.HasSuffix(name, "_test.go"),
				strings.HasSuffix(name, "_bpfel.go"): // contains the names of files
				continue
			}
			text, err := fs.ReadFile(tree, name)
			if err != nil {
				return err
			}
			sum, err := digest(text)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			sums[part] = append(sums[part], sum)
		}
		return nil
	}
	for _, top := range []string{"internal", provider} {
		if err := fs.WalkDir(tree, top, add); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	all := map[string]string{}
	for _, part := range parts {
		if len(sums[part]) == 0 {
			return nil, fmt.Errorf("%s is not in the tree", part)
		}
		slices.Sort(sums[part])
		all[part] = fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(sums[part], " "))))
	}
	return all, nil
}

func textDigest(text []byte) (string, error) { return fmt.Sprintf("%x", sha256.Sum256(text)), nil }

// goDigest returns the digest of a file's tokens without comments.
func goDigest(text []byte) (string, error) {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", files.Base(), len(text)), text, nil, 0)
	sum := sha256.New()
	for {
		_, t, literal := s.Scan()
		if t == token.EOF {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if t != token.SEMICOLON { // most stand for line breaks
			fmt.Fprintf(sum, "%s %q\n", t, literal)
		}
	}
}

// programDigest returns the digest of an object's instructions, without the names that
// they refer to.
func programDigest(text []byte) (string, error) {
	object, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, section := range object.Sections {
		if section.Flags&elf.SHF_EXECINSTR == 0 {
			continue
		}
		if _, err := io.Copy(sum, section.Open()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
