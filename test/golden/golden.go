// SPDX-License-Identifier: Apache-2.0

// Package golden compares texts with files of the repository that tests generate: with
// -update they are written.
package golden

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "regenerate the files that tests compare")

// File reports how a file differs from a text, or writes it.
func File(t *testing.T, path, text string) {
	t.Helper()
	var err error
	if *update {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	want, readErr := os.ReadFile(path)
	if err := errors.Join(err, readErr); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (go test -run '^%s$' -update regenerates it): -want +got:\n%s", path, t.Name(), diff)
	}
}

// Parts compares parts of a file with texts, in their order, or writes them. Each begins after
// the line begins, and ends before the next "<!-- end -->".
func Parts(t *testing.T, path, begins string, texts ...string) {
	t.Helper()
	const ends = "<!-- end -->\n"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	current, rest := "", string(page)
	for _, text := range texts {
		before, found, begun := strings.Cut(rest, begins)
		_, after, ended := strings.Cut(found, ends)
		if !begun || !ended {
			t.Fatalf("%s: want %d pairs of lines %q and %q", path, len(texts), begins, ends)
		}
		current += before + begins + text + ends
		rest = after
	}
	File(t, path, current+rest)
}
