// SPDX-License-Identifier: Apache-2.0

package guide_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// block is a fenced block of the guide: "```sh router" is of the language sh, and for
// the router.
type block struct {
	language, target string
	text             string
	// shown is what the guide says that it prints: the block of the language text
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
	// What isn't read isn't played.
	if read, fences := len(fence.FindAllIndex(text, -1)), strings.Count("\n"+string(text), "\n```"); 2*read != fences {
		t.Fatalf("%s has %d fences, of which %d were read", guide, fences, 2*read)
	}
	return blocks
}
