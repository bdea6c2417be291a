// SPDX-License-Identifier: Apache-2.0

// Package guide reads the blocks of a guide in docs/guides, which tests play.
package guide

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Block is a fenced block of a guide: "```sh router" is of the language sh, and for
// the router.
type Block struct {
	Language, Target string
	Text             string
	// Shown is the output in the guide: the block of the language text
	// that follows it.
	Shown string
	// guide is the guide's path, and line where the block begins in it, counted from 1.
	guide string
	line  int
}

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.guide, b.line) }

var fence = regexp.MustCompile("(?ms)^```(\\w+)(?: ([^\n]+))?\n(.*?)^```$")

// Blocks returns the blocks of a guide in their order.
func Blocks(t *testing.T, path string) []Block {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []Block
	for _, at := range fence.FindAllSubmatchIndex(text, -1) {
		b := Block{
			Language: string(text[at[2]:at[3]]), Text: string(text[at[6]:at[7]]),
			guide: path, line: 1 + strings.Count(string(text[:at[0]]), "\n"),
		}
		if at[4] >= 0 {
			b.Target = string(text[at[4]:at[5]])
		}
		if last := len(blocks) - 1; b.Language == "text" && last >= 0 && blocks[last].Language == "sh" && blocks[last].Target != "" {
			blocks[last].Shown = b.Text
			continue
		}
		blocks = append(blocks, b)
	}
	// A block that isn't read isn't played.
	if read, fences := len(fence.FindAllIndex(text, -1)), strings.Count("\n"+string(text), "\n```"); 2*read != fences {
		t.Fatalf("%s has %d fences, of which %d were read", path, fences, 2*read)
	}
	return blocks
}

// volatile lists parts of commands' output that differ from one cluster to the
// next, and their substitutes in the comparison.
var volatile = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b(\d+[dhms])+( ago)?\b`), "AGE"},
	{regexp.MustCompile(`\b10\.96\.\d+\.\d+\b`), "CLUSTER-IP"},
	{regexp.MustCompile(`\b(\d+):\d{5}/`), "$1:NODE-PORT/"},
	{regexp.MustCompile(`router id 172\.30\.0\.1[123]`), "router id OF-A-NODE"},
	{regexp.MustCompile(`\bnhid \d+ `), ""},
}

// Compare returns an error with a line of the shown output that was not printed.
// Lines are compared by their fields, in any order; more may be printed.
func Compare(shown, printed string) error {
	lines := strings.Split(printed, "\n")
	for line := range strings.Lines(shown) {
		want := fields(line)
		if slices.Equal(want, []string{ellipsis}) {
			continue
		}
		at := slices.IndexFunc(lines, func(l string) bool { return match(want, fields(l)) })
		if at < 0 {
			return fmt.Errorf("no line %q in\n%s", strings.TrimSpace(line), printed)
		}
		lines = slices.Delete(lines, at, at+1)
	}
	return nil
}

// ellipsis stands for any fields of a line, none too, and alone for lines.
const ellipsis = "…"

// match compares fields with those that are wanted.
func match(want, got []string) bool {
	for i, w := range want {
		if w == ellipsis {
			for skip := i; skip <= len(got); skip++ {
				if match(want[i+1:], got[skip:]) {
					return true
				}
			}
			return false
		}
		if i >= len(got) || got[i] != w {
			return false
		}
	}
	return len(got) == len(want)
}

func fields(line string) []string {
	for _, v := range volatile {
		line = v.pattern.ReplaceAllString(line, v.instead)
	}
	return strings.Fields(line)
}
