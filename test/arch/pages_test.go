// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const root = "../.."

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inline   = regexp.MustCompile("`[^`\n]*`")
	notWords = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// pages returns the Markdown files below docs and at the root, by their paths from the
// root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(path string) {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(text)
	}
	top, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range top {
		add(filepath.Base(path))
	}
	err = fs.WalkDir(os.DirFS(root), "docs", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			add(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anchors returns the names that GitHub gives to a page's headings.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := notWords.ReplaceAllString(strings.ToLower(m[2]), "")
		names[strings.ReplaceAll(name, " ", "-")] = true
	}
	return names
}

// TestLinks follows each relative link to its file and heading.
func TestLinks(t *testing.T) {
	all := pages(t)
	for path, text := range all {
		for _, m := range link.FindAllStringSubmatch(inline.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: link %s: %v", path, m[1], err)
			} else if anchor != "" && !anchors(all[target])[anchor] {
				t.Errorf("%s: link %s: no such heading", path, m[1])
			}
		}
	}
}

// TestIndex finds each page of docs in docs/README.md.
func TestIndex(t *testing.T) {
	all := pages(t)
	index := all["docs/README.md"]
	for path := range all {
		name, ok := strings.CutPrefix(path, "docs/")
		if !ok || name == "README.md" || strings.HasPrefix(name, "reports/") || strings.HasPrefix(name, "upstream/") {
			continue
		}
		if !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
}

// TestLines rejects text lines of more than 120 characters. Tables, blocks and lines
// that are mostly a link are exempt.
func TestLines(t *testing.T) {
	for path, text := range pages(t) {
		for line := range strings.Lines(fence.ReplaceAllString(text, "")) {
			text := link.ReplaceAllString(strings.TrimRight(line, "\n"), "]")
			if utf8.RuneCountInString(text) > 120 && !strings.HasPrefix(strings.TrimSpace(text), "|") {
				t.Errorf("%s: more than 120 characters: %s", path, text)
			}
		}
	}
}
