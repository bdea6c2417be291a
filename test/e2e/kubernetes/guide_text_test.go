// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block is a fenced block of the guide: "```sh router" is of the language sh, and for
// the router.
type block struct {
	language, target string
	text             string
	// shown is the output in the guide: the block of the language text
	// that follows it.
	shown string
	// line is where it begins in the guide, counted from 1.
	line int
}

func (b block) String() string { return fmt.Sprintf("%s:%d", guide, b.line) }

var fence = regexp.MustCompile("(?ms)^```(\\w+)(?: (\\S+))?\n(.*?)^```$")

// readBlocks returns the guide's blocks in their order.
func readBlocks(t *testing.T) []block {
	t.Helper()
	text, err := os.ReadFile(root + "/" + guide)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	for _, at := range fence.FindAllSubmatchIndex(text, -1) {
		b := block{
			language: string(text[at[2]:at[3]]), text: string(text[at[6]:at[7]]),
			line: 1 + strings.Count(string(text[:at[0]]), "\n"),
		}
		if at[4] >= 0 {
			b.target = string(text[at[4]:at[5]])
		}
		if last := len(blocks) - 1; b.language == "text" && last >= 0 && blocks[last].language == "sh" && blocks[last].target != "" {
			blocks[last].shown = b.text
			continue
		}
		blocks = append(blocks, b)
	}
	// A block that isn't read isn't played.
	if read, fences := len(fence.FindAllIndex(text, -1)), strings.Count("\n"+string(text), "\n```"); 2*read != fences {
		t.Fatalf("%s has %d fences, of which %d were read", guide, fences, 2*read)
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

// compare returns an error with a line of the shown output that was not printed.
// Lines are compared by their fields, in any order; more may be printed.
func compare(shown, printed string) error {
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

// compare ignores differences between clusters, and no others.
func TestCompare(t *testing.T) {
	const printed = "NAME PORTS AGE\nweb 80:31715/TCP 1m6s\n203.0.113.10 nhid 37 proto bgp\nrouter 12 up\n"
	for shown, want := range map[string]bool{
		"":                                    true,
		"web   80:30579/TCP  7s\n":            true,
		"NAME PORTS AGE\nweb 80:30000/TCP 7s": true,
		"203.0.113.10 nhid 5 proto bgp":       true,
		"router … up":                         true,
		"router 12 up …":                      true,
		"…\nrouter … 12 … up\n…":              true,
		"web 81:30579/TCP 7s":                 false,
		"web 80:30579/TCP":                    false,
		"203.0.113.11 nhid 5 proto bgp":       false,
		"router … down":                       false,
		"router 12 up\nrouter 12 up":          false,
	} {
		if err := compare(shown, printed); (err == nil) != want {
			t.Errorf("%q: %v, want agreement %t", shown, err, want)
		}
	}
}
