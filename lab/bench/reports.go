// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
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

	"github.com/cilium/ebpf"
)

// program is the file name of the balancer's compiled BPF programs.
const program = "balancer_bpfel.o"

// measures lists the code that each bench measures: programs by their file name, and
// Go packages by their folders, with the folders below them.
var measures = map[string][]string{
	"packet":     {program},
	"forward":    {program},
	"churn":      {program, "internal/dataplane/xdp"},
	"flood":      {program},
	"ecmp":       {"internal/bgp"},
	"health":     {"internal/health"},
	"kubernetes": {"internal/source/kube", "internal/controller"},
}

// CommittedReport is a report of the tree.
type CommittedReport struct {
	Report
	// Stale explains why the report has to be measured again; empty: it is current.
	Stale string
}

// CommittedReports reads docs/reports in a git work tree. A report is current if the
// code that its bench measures is that of its commit: the instructions of programs,
// and Go without comments, formatting and tests.
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
	if r.Quick {
		return "measured with --quick", nil
	}
	now, err := digests(parts, func(fn visit) error { return walkTree(root, fn) })
	if err != nil {
		return "", err
	}
	then, err := digests(parts, func(fn visit) error { return walkCommit(root, r.Commit, fn) })
	if err != nil {
		return fmt.Sprintf("commit %s: %v", r.Commit, err), nil
	}
	var changed []string
	for _, part := range parts {
		if now[part] == "" {
			return "", fmt.Errorf("bench %s: %s is not in the tree", r.Bench, part)
		}
		if now[part] != then[part] {
			changed = append(changed, part)
		}
	}
	if len(changed) > 0 {
		return "changed since its commit: " + strings.Join(changed, ", "), nil
	}
	return "", nil
}

// visit is called with a file's name, relative to the root, and its content.
type visit func(name string, content func() ([]byte, error)) error

// digests returns the digest of each part; a part without files has none. Names of
// files don't count.
func digests(parts []string, walk func(visit) error) (map[string]string, error) {
	sums := map[string][]string{}
	err := walk(func(name string, content func() ([]byte, error)) error {
		for _, part := range parts {
			digest := goDigest
			switch {
			case path.Base(name) == part:
				digest = programDigest
			case !strings.HasPrefix(name, part+"/") || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"),
				strings.HasSuffix(name, "_bpfel.go"): // contains the names of files
				continue
			}
			text, err := content()
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
	})
	all := map[string]string{}
	for part, list := range sums {
		slices.Sort(list)
		all[part] = strings.Join(list, " ")
	}
	return all, err
}

// goDigest is that of a file's tokens without comments.
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

// programDigest is that of the instructions of an object's programs, without the names
// that they refer to.
func programDigest(text []byte) (string, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(text))
	if err != nil {
		return "", err
	}
	var sums []string
	for _, p := range spec.Programs {
		sum := sha256.New()
		for _, i := range p.Instructions {
			fmt.Fprintln(sum, uint64(i.OpCode), i.Dst, i.Src, i.Offset, i.Constant)
		}
		sums = append(sums, hex.EncodeToString(sum.Sum(nil)))
	}
	slices.Sort(sums)
	return strings.Join(sums, " "), nil
}

// walkTree visits the files of a work tree.
func walkTree(root string, fn visit) error {
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == ".git" {
			return fs.SkipDir
		}
		relative, err := filepath.Rel(root, name)
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		return fn(filepath.ToSlash(relative), func() ([]byte, error) { return os.ReadFile(name) })
	})
}

// walkCommit visits the files of a commit.
func walkCommit(root, commit string, fn visit) error {
	if _, err := hex.DecodeString(commit); err != nil {
		return errors.New("not a clean build of a commit")
	}
	var problem bytes.Buffer
	git := exec.Command("git", "-C", root, "archive", "--format=tar", commit)
	git.Stderr = &problem
	archive, err := git.Output()
	if err != nil {
		return fmt.Errorf("git archive: %w: %s", err, bytes.TrimSpace(problem.Bytes()))
	}
	files := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := fn(header.Name, func() ([]byte, error) { return io.ReadAll(files) }); err != nil {
			return err
		}
	}
}
