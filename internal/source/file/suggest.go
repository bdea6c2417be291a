// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"strings"
)

// unknownField says that a mapping has no field of a name, and which one is
// near to it, if any.
func unknownField(near string, fields []field) error {
	if near != "" {
		return fmt.Errorf("unknown field: did you mean %q?", near)
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return fmt.Errorf("unknown field: want one of %s", join(names))
}

func join[T ~string](words []T) string {
	s := make([]string, len(words))
	for i, w := range words {
		s[i] = string(w)
	}
	return strings.Join(s, ", ")
}

// nearest returns the field whose name is written most like the given one; empty
// if more than about a third of the letters differ.
func nearest(given string, fields []field) string {
	const longest = 64 // no field's name comes near
	if len(given) > longest {
		return ""
	}
	best, least := "", len(given)/3+2
	for _, f := range fields {
		if d := distance(strings.ToLower(given), strings.ToLower(f.name)); d < least {
			best, least = f.name, d
		}
	}
	return best
}

// distance is Levenshtein's: how many letters have to be put in, taken out or
// replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
