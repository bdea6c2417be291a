// SPDX-License-Identifier: Apache-2.0

// Command mutate changes the product's code at random places, one at a time, and reports which
// changes no test notices:
//
//	go -C tools run ./mutate -n 60 -seed 1 -list /tmp/mutants.txt
//	go -C tools run ./mutate -list /tmp/mutants.txt -results /tmp/results.tsv [-base REF] [-tier ci]
//
// The first command writes mutants of HEAD that compile. The second one applies each to REF and
// runs a tier's tests, first in its package and then in packages that import it, until a test
// fails: without the race detector, which allocates more than a mutant may. A mutant in the results
// is skipped, so the command can be repeated after an interrupt.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func main() {
	number := flag.Int("n", 0, "make so many mutants")
	seed := flag.Uint64("seed", 1, "seed of the choice of mutants")
	list := flag.String("list", "", "file of the mutants")
	results := flag.String("results", "", "file to which the result of each mutant is appended")
	base := flag.String("base", "HEAD", "commit whose tests run; with -n the one that is mutated")
	dir := flag.String("worktree", filepath.Join(os.TempDir(), "fairlead-mutate"), "folder to work in, which must not exist")
	tier := flag.String("tier", "test", "tier of tests to run: test, ci or all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := git("worktree", "add", "--detach", *dir, *base); err != nil {
		log.Fatal(err)
	}
	t, err := &tree{ctx, *dir}, error(nil)
	if *number > 0 {
		err = t.list(*list, *number, *seed)
	} else {
		err = t.test(*list, *results, *tier)
	}
	if _, failed := git("worktree", "remove", "--force", *dir); err != nil || failed != nil {
		log.Fatal(errors.Join(err, failed))
	}
}

// git is not interrupted with the rest.
func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), err
}

type tree struct {
	ctx context.Context
	dir string // of the worktree
}

// run runs a command in the worktree and returns its output.
func (t *tree) run(args ...string) (string, error) {
	// A mutant may allocate without end.
	cmd := exec.CommandContext(t.ctx, "prlimit", append([]string{"--as=12884901888"}, args...)...)
	cmd.Dir, cmd.Env = t.dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -ldflags=-w -buildvcs=false")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with tests and their children
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func isBPF(file string) bool { return strings.HasPrefix(file, "bpf/") }

// compile compiles the package or program of a file. BPF programs that stay the same are
// an error.
func (t *tree) compile(file string) error {
	if !isBPF(file) {
		_, err := t.run("go", "build", "./"+filepath.Dir(file))
		return err
	}
	_, err := t.run("make", "--no-print-directory", "bpf")
	if _, same := git("-C", t.dir, "diff", "--quiet", "--", "internal"); err == nil && same == nil {
		err = errors.New("no program changes")
	}
	return err
}

func (t *tree) restore() error {
	_, err := git("-C", t.dir, "checkout", "--quiet", "--force", "HEAD", "--", ".")
	return err
}

// list writes n mutants. Their lines are drawn from n equal parts of all lines, so each package
// has its share.
func (t *tree) list(path string, n int, seed uint64) error {
	names, err := git("-C", t.dir, "ls-files", "internal/*.go", "api/*.go", "cmd/fairlead/*.go", "bpf/*.[ch]")
	if err != nil {
		return err
	}
	var lines []string // the file of each
	for name := range strings.FieldsSeq(names) {
		text, err := os.ReadFile(filepath.Join(t.dir, name))
		if err != nil {
			return err
		}
		if !strings.HasSuffix(name, "_test.go") && !bytes.Contains(text[:min(len(text), 300)], []byte("DO NOT EDIT")) {
			lines = append(lines, slices.Repeat([]string{name}, bytes.Count(text, []byte("\n")))...)
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	for id := range n {
		for tries, patch := 0, ""; tries < 5 && patch == ""; tries++ {
			line := (id*len(lines) + random.IntN(len(lines))) / n
			var head string
			head, patch, err = t.mutate(random, lines[line], line-slices.Index(lines, lines[line])+1)
			if err := cmp.Or(err, t.ctx.Err()); err != nil {
				return err
			}
			if patch != "" {
				fmt.Fprintf(out, "mutant %d %s\n%s", id+1, head, patch)
			}
		}
	}
	return out.Close()
}

// mutate returns a mutant near a line, of a random kind if there is one that compiles: its place
// and kind, and the patch.
func (t *tree) mutate(random *rand.Rand, file string, line int) (head, patch string, err error) {
	path := filepath.Join(t.dir, file)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	sites := sitesOf(filepath.Ext(file), text)
	distance := func(s site) int { return max(s.line-line, line-s.line) }
	slices.SortStableFunc(sites, func(a, b site) int { return cmp.Compare(distance(a), distance(b)) })
	for first, i := random.IntN(len(kinds)), 0; i < len(kinds) && err == nil; i++ {
		kind := kinds[(first+i)%len(kinds)]
		those := slices.DeleteFunc(slices.Clone(sites), func(s site) bool { return s.kind != kind })
		for _, s := range those[:min(len(those), 3)] {
			err = os.WriteFile(path, slices.Concat(text[:s.start], []byte(s.text), text[s.end:]), 0o644)
			if err == nil && t.compile(file) == nil {
				head = fmt.Sprintf("%s:%d %s", file, s.line, kind)
				patch, err = git("-C", t.dir, "diff", "--no-color", "--", file)
			}
			if err = cmp.Or(err, t.restore()); err != nil || patch != "" {
				return head, patch, err
			}
		}
	}
	return "", "", err
}

// test runs the tests for each mutant of a list that has no result yet.
func (t *tree) test(list, results, tier string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(results, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	known, err := io.ReadAll(out)
	if err != nil {
		return err
	}
	// The imports of each package's tests, the shortest list first.
	packages, err := t.run("go", "list", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
	if err != nil {
		return fmt.Errorf("go list: %w: %s", err, packages)
	}
	imports := slices.SortedFunc(strings.Lines(packages), func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	rounds, err := t.run("go", "run", "./test/tier", tier)
	if err != nil {
		return fmt.Errorf("tier %s: %w: %s", tier, err, rounds)
	}
	for _, one := range regexp.MustCompile(`(?m)^mutant `).Split(string(text), -1)[1:] {
		head, patch, _ := strings.Cut(one, "\n")
		id, head, _ := strings.Cut(head, " ")
		file, _, _ := strings.Cut(head, ":")
		if strings.Contains("\n"+string(known), "\n"+id+"\t") {
			continue
		}
		result := t.judge(file, patch, commands(rounds, concerned(imports, file)))
		if err := cmp.Or(t.restore(), t.ctx.Err()); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s\t%s\t%s\n", id, result, head); err != nil {
			return err
		}
	}
	return nil
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: \S+|^FAIL\s+\S+|^panic: .*`)

// judge returns "caught" with the first failure, "survived", "inapplicable" to this commit, or
// "unclear" if the tests fail without the mutant, too.
func (t *tree) judge(file, patch string, commands [][]string) string {
	path := t.dir + ".patch"
	defer os.Remove(path)
	err := os.WriteFile(path, []byte(patch), 0o644)
	if err == nil {
		_, err = git("-C", t.dir, "apply", "--recount", path)
	}
	if err == nil && isBPF(file) {
		err = t.compile(file)
	}
	if err != nil {
		return "inapplicable\t" + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	for _, args := range commands {
		out, err := t.run(args...)
		if err == nil {
			continue
		}
		result, err := "caught", t.restore()
		if _, without := t.run(args...); err != nil || without != nil {
			result = "unclear"
		}
		return result + "\t" + strings.Join(strings.Fields(failure.FindString(out)), " ")
	}
	return "survived\t"
}

// concerned returns the packages whose tests a change of a file may fail: its own first, then those
// that import it.
func concerned(imports []string, file string) (packages []string) {
	const module = "fairlead.io/fairlead/"
	own := filepath.Dir(file)
	if isBPF(file) {
		own = "internal/dataplane/xdp/packets"
	}
	packages = []string{"./" + own}
	for _, line := range imports {
		words := strings.Fields(line)
		folder, test := strings.CutSuffix(strings.TrimPrefix(words[0], module), ".test")
		switch {
		case !test || folder == own:
		case isBPF(file) && (strings.HasPrefix(folder, "internal/dataplane/xdp") || folder == "test/dataplane"),
			!isBPF(file) && slices.Contains(words[1:], module+own):
			packages = append(packages, "./"+folder)
		}
	}
	return packages
}

// commands returns the calls of go test for packages with the flags of the tier's rounds, a line
// each (test/tier), the first package first.
func commands(rounds string, packages []string) (all [][]string) {
	for _, group := range slices.AppendSeq([][]string{packages[:1]}, slices.Chunk(packages[1:], 3)) {
		for line := range strings.Lines(rounds) {
			args, some := []string{"go", "test", "-timeout=30m"}, false
			for word := range strings.FieldsSeq(line[strings.LastIndex(line, "\t")+1:]) {
				if of := slices.Contains(group, word); of || word[0] == '-' {
					args, some = append(args, word), some || of
				}
			}
			if some {
				all = append(all, args)
			}
		}
	}
	return all
}
