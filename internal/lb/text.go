// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"slices"
	"strings"
)

// words maps the values of a small enumeration to the words that stand for
// them in configuration files and in JSON. The index is the value; an empty
// word is a value that can't be written.
type words []string

func (w words) text(v uint8) string {
	if int(v) < len(w) && w[v] != "" {
		return w[v]
	}
	return fmt.Sprintf("unknown(%d)", v)
}

func (w words) parse(kind, text string) (uint8, error) {
	if i := slices.Index(w, text); i >= 0 && text != "" {
		return uint8(i), nil
	}
	known := slices.DeleteFunc(slices.Clone(w), func(s string) bool { return s == "" })
	return 0, fmt.Errorf("unknown %s %q: want one of %s", kind, text, strings.Join(known, ", "))
}
