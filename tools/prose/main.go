// SPDX-License-Identifier: Apache-2.0

// Command prose finds phrases that are not plain, standard English (see the table in
// patterns.go) in the comments and texts of programs, in pages and in the subjects of
// commits, and counts clauses that comments use too often (see clauses.go).
// scripts/verify.sh runs it:
//
//	go -C tools run ./prose [-update] [BASE]
//
// BASE is the commit after which subjects are checked. What the tree still has is
// counted in known.txt, a line for each pattern and for each clause in a package. A count
// may only fall, and -update writes down that it has.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
)

const knownFile = "prose/known.txt"

func main() {
	update := flag.Bool("update", false, "write down counts that have fallen")
	flag.Parse()
	if err := run(*update, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

// run is started in tools/.
func run(update bool, base string) error {
	files, err := git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	if err != nil {
		return err
	}
	var all []finding
	var comments usage
	for name := range strings.SplitSeq(strings.Trim(files, "\x00"), "\x00") {
		text, err := os.ReadFile("../" + name)
		if err != nil {
			continue // deleted, and not committed yet
		}
		all = append(all, find(name, readable(name, text))...)
		comments.add(name, text)
	}
	if base != "" {
		subjects, err := git("log", "--no-merges", "--format=%h %s", base+"..HEAD")
		if err != nil {
			return err
		}
		all = append(all, find("commit", subjects)...)
	}
	return compare(all, &comments, update)
}

func git(args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", ".."}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %v: %w: %s", args, err, &errs)
	}
	return string(out), nil
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// readable returns what people read in a file. The lines keep their numbers.
func readable(name string, text []byte) string {
	switch {
	case strings.HasPrefix(name, "tools/prose/"), path.Base(name) == "go.mod", path.Base(name) == "go.sum":
		return ""
	case path.Ext(name) == ".go" && !generated.Match(text):
		return ofGo(text, true)
	case path.Ext(name) == ".c", path.Ext(name) == ".h":
		return ofC(string(text))
	case path.Ext(name) == ".md", path.Ext(name) == ".yaml", path.Ext(name) == ".json", path.Ext(name) == ".sh", name == "Makefile":
		return string(text)
	}
	return ""
}

// ofGo returns the comments of a Go file, the words of the names that it declares, and
// maybe its strings.
func ofGo(text []byte, texts bool) string {
	names := declared(text)
	var s scanner.Scanner
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(text))
	s.Init(file, text, nil, scanner.ScanComments)
	var b strings.Builder
	for line := 1; ; {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return b.String()
		}
		switch {
		case kind == token.IDENT && names[file.Offset(pos)]:
			literal = split(literal)
		case kind != token.COMMENT && (kind != token.STRING || !texts):
			continue
		}
		for ; line < file.Line(pos); line++ {
			b.WriteByte('\n')
		}
		b.WriteString(literal + " ")
		line += strings.Count(literal, "\n")
	}
}

var comment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

// ofC returns the comments of a C file.
func ofC(text string) string {
	var b strings.Builder
	end := 0
	for _, at := range comment.FindAllStringIndex(text, -1) {
		b.WriteString(strings.Repeat("\n", strings.Count(text[end:at[0]], "\n")))
		b.WriteString(text[at[0]:at[1]] + " ")
		end = at[1]
	}
	return b.String()
}

// finding is one match of a pattern.
type finding struct {
	where, text string
	pattern     *pattern
}

// find returns the matches of all patterns in a text, line by line.
func find(name, text string) []finding { return findAll(patterns, name, text) }

func findAll(patterns []pattern, name, text string) []finding {
	var found []finding
	number := 0
	for line := range strings.Lines(text) {
		number++
		for i := range patterns {
			p := &patterns[i]
			if p.allow(name) {
				continue
			}
			for _, m := range p.find.FindAllString(line, -1) {
				if !p.except.MatchString(m) {
					found = append(found, finding{fmt.Sprintf("%s:%d", name, number), strings.TrimSpace(m), p})
				}
			}
		}
	}
	return found
}

// compare reports patterns that are found more often than known.txt allows.
func compare(all []finding, comments *usage, update bool) error {
	known, err := readKnown()
	if err != nil {
		return err
	}
	var now strings.Builder
	wrong := 0
	for i := range patterns {
		p := &patterns[i]
		count := 0
		for _, f := range all {
			if f.pattern == p {
				count++
			}
		}
		most := known[p.text]
		if count > most {
			wrong++
			fmt.Printf("%d times %q, and %d are known: use %s\n", count, p.text, most, p.instead)
			for _, f := range all {
				if f.pattern == p {
					fmt.Printf("  %s: %s\n", f.where, f.text)
				}
			}
		}
		if min(count, most) > 0 {
			fmt.Fprintf(&now, "%d\t%s\n", min(count, most), p.text)
		}
	}
	over, lines := comments.compare(known)
	now.WriteString(lines)
	wrong += over
	if update {
		if err := os.WriteFile(knownFile, []byte(now.String()), 0o644); err != nil {
			return err
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d patterns or clauses", wrong)
	}
	return nil
}

func readKnown() (map[string]int, error) {
	text, err := os.ReadFile(knownFile)
	if err != nil {
		return nil, err
	}
	known := map[string]int{}
	for line := range strings.Lines(string(text)) {
		count, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		n := 0
		if _, err := fmt.Sscan(count, &n); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", knownFile, line, err)
		}
		known[name] = n
	}
	return known, nil
}
