// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/golden"
)

// listedKeywords returns the keywords of keepalived by block, with the first version that has each.
// Blocks with equal keywords have one name, as in keywords().
func listedKeywords(t *testing.T) map[string]map[string]string {
	text, err := os.ReadFile("testdata/keywords.txt")
	if err != nil {
		t.Fatal(err)
	}
	known, listed := keywords(), map[string]map[string]string{"": {}}
	for line := range strings.Lines(string(text)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), "#")
		block := ""
		words := strings.Fields(path)
		for i, word := range words {
			d := known[block][word]
			if d == nil && block != anything {
				t.Errorf("%s: %q has no row in the block %q", path, word, block)
				break
			}
			if listed[block] == nil {
				listed[block] = map[string]string{}
			}
			if i == len(words)-1 {
				listed[block][word] = strings.TrimSpace(version)
			}
			if block != anything {
				block = d.inside
			}
		}
	}
	return listed
}

// wholeBlocks returns the keywords of blocks that are reported as a whole, by the innermost block.
func wholeBlocks(t *testing.T) map[string][]string {
	text, err := os.ReadFile("testdata/keywords.txt")
	if err != nil {
		t.Fatal(err)
	}
	known, inside := keywords(), map[string][]string{}
	for line := range strings.Lines(string(text)) {
		path, _, _ := strings.Cut(strings.TrimSpace(line), "#")
		block, words := "", strings.Fields(path)
		for i, word := range words {
			if block == anything {
				inside[words[i-1]] = append(inside[words[i-1]], strings.Join(words[i:], " "))
				break
			}
			if d := known[block][word]; d != nil {
				block = d.inside
			}
		}
	}
	for _, words := range inside {
		slices.Sort(words)
	}
	return inside
}

// Each keyword of keepalived has a row, and each row is a keyword of keepalived.
func TestKeywords(t *testing.T) {
	listed := listedKeywords(t)
	for block, words := range keywords() {
		for word, d := range words {
			if _, is := listed[block][word]; !is {
				t.Errorf("block %q: keepalived has no keyword %q", block, word)
			}
			if d.read == nil && d.outcome != reported || d.text == "" {
				t.Errorf("block %q: %q is %s and isn't read, or has no text", block, word, d.outcome)
			}
		}
	}
}

// versionOfKeepalived is the version of the installed keepalived.
func versionOfKeepalived(t *testing.T) string {
	t.Helper()
	said := runKeepalived(t, "", "--version")
	version := regexp.MustCompile(`(?m)^Keepalived v(\d\.\d\.\d) `).FindStringSubmatch(said)
	if version == nil {
		t.Fatalf("keepalived has no version: %s", said)
	}
	return version[1]
}

// The installed keepalived knows each keyword of the table that its version has.
func TestKeywordsOfKeepalived(t *testing.T) {
	around := map[string][]string{
		"global_defs": {"global_defs"}, "virtual_server": {"virtual_server 192.0.2.1 80"},
	}
	around["real_server"] = append(slices.Clone(around["virtual_server"]), "real_server 10.0.0.1 80")
	for _, check := range []string{"TCP_CHECK", "DNS_CHECK", "UDP_CHECK", "SMTP_CHECK", "HTTP_GET"} {
		around[check] = append(slices.Clone(around["real_server"]), check)
	}
	around["url"] = append(slices.Clone(around["HTTP_GET"]), "url")
	unknown := regexp.MustCompile(`Unknown keyword '(.*)'`)
	listed, installed := listedKeywords(t), versionOfKeepalived(t)
	for block, outer := range around {
		text := strings.Join(outer, " {\n") + " {\n"
		for word, version := range listed[block] {
			switch d := keywords()[block][word]; {
			case version > installed, word == "vrrp_ipsets", word == "tls_compliant": // an option of its build, a keyword of SSL_GET alone
			case word == "url":
				text += word + " {\npath /\n}\n"
			case d.inside == "HTTP_GET": // keepalived 2.2.7 crashes without a URL
				text += word + " {\nurl {\npath /\n}\n}\n"
			case d.inside != "":
				text += word + " 1 1 {\n}\n"
			default:
				text += word + " 1 1\n"
			}
		}
		text += "none 1\n" + strings.Repeat("}\n", len(outer))
		var names []string
		for _, m := range unknown.FindAllStringSubmatch(runKeepalived(t, text), -1) {
			names = append(names, m[1])
		}
		if names = slices.Compact(names); !slices.Equal(names, []string{"none"}) {
			t.Errorf("block %q: keepalived doesn't know %q", block, names)
		}
	}
}

// TestReference compares the reference's table with the directives.
func TestReference(t *testing.T) {
	var text strings.Builder
	for _, block := range []struct{ name, title string }{
		{"", "At the top"}, {"global_defs", "In `global_defs`"}, {"virtual_server", "In `virtual_server`"},
		{"real_server", "In `real_server`"}, {"TCP_CHECK", "In `TCP_CHECK` and `PING_CHECK`"}, {"DNS_CHECK", "In `DNS_CHECK`"},
		{"UDP_CHECK", "In `UDP_CHECK`"}, {"SMTP_CHECK", "In `SMTP_CHECK`"}, {"HTTP_GET", "In `HTTP_GET` and `SSL_GET`"},
		{"url", "In `url`"},
	} {
		fmt.Fprintf(&text, "\n## %s\n\n| directive | outcome | counterpart, or why there is none |\n| --- | --- | --- |\n", block.title)
		rows := blocks[block.name]
		for _, d := range rows {
			whole := ""
			if d.inside == anything && d.outcome == reported {
				whole = " (the block as a whole)"
			}
			fmt.Fprintf(&text, "| `%s` | %s%s | %s |\n", strings.ReplaceAll(d.words, " ", "`, `"), d.outcome, whole, d.text)
		}
	}
	text.WriteString("\n## In blocks that are reported as a whole\n\n| block | directives |\n| --- | --- |\n")
	whole := wholeBlocks(t)
	for _, block := range slices.Sorted(maps.Keys(whole)) {
		fmt.Fprintf(&text, "| `%s` | `%s` |\n", block, strings.Join(whole[block], "`, `"))
	}
	if n := len(blocks) + 1; strings.Count(text.String(), "\n## ") != n {
		t.Errorf("the reference doesn't have all %d blocks", n)
	}
	golden.Parts(t, "../../../docs/reference/keepalived.md",
		"<!-- directives, made by go test ./internal/config/keepalived -update -->\n", text.String()+"\n")
}
