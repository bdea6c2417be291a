// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// proof is a link to a test by its name.
var proof = regexp.MustCompile("\\[`((?:Test|Fuzz)\\w+)`\\]\\(([^)]+)\\)")

// TestProofs finds each test that pages link to, and in the threat model at least one for
// each promise: a row of a table with a column "tests".
func TestProofs(t *testing.T) {
	const model = "docs/design/threat-model.md"
	promises := 0
	for path, text := range pages(t) {
		for _, m := range proof.FindAllStringSubmatch(text, -1) {
			file := filepath.Join(root, filepath.Dir(path), m[2])
			code, err := os.ReadFile(file)
			if err != nil {
				t.Errorf("%s: %v", path, err)
			} else if !strings.Contains(string(code), "\nfunc "+m[1]+"(") {
				t.Errorf("%s: %s has no %s", path, m[2], m[1])
			}
		}
		if path != model {
			continue
		}
		for _, table := range strings.Split(text, "\n| promise | tests |\n| --- | --- |\n")[1:] {
			rows, _, _ := strings.Cut(table, "\n\n")
			for row := range strings.SplitSeq(rows, "\n") {
				promises++
				if !proof.MatchString(row) {
					t.Errorf("%s: no test for %s", path, row)
				}
			}
		}
	}
	if promises < 20 {
		t.Errorf("%s: %d promises with tests", model, promises)
	}
}
