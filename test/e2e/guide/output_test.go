// SPDX-License-Identifier: Apache-2.0

package guide_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// volatile is what differs from one cluster to the next in what commands print, and
// what the comparison has instead.
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

// compare says which line of the shown output is not in what was printed. Lines are
// compared by their fields, in any order; more may be printed.
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
