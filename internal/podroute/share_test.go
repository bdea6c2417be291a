// SPDX-License-Identifier: Apache-2.0

package podroute

import (
	"fmt"
	"strings"
	"testing"
)

// Each namespace has prefixes of its own.
func TestParseShares(t *testing.T) {
	for _, c := range []struct {
		texts []string
		want  string
	}{
		{nil, "[]"},
		{[]string{"shop=10.1.0.7/24,fd00:10::/64", "news=10.1.1.0/24"}, "[{shop [10.1.0.0/24 fd00:10::/64]} {news [10.1.1.0/24]}]"},
		{[]string{"shop"}, `"shop": want NAMESPACE=PREFIX, with commas between prefixes`},
		{[]string{"=10.1.0.0/24"}, `"=10.1.0.0/24": want NAMESPACE=PREFIX, with commas between prefixes`},
		{[]string{"shop=10.1.0.0"}, "no '/'"},
		{[]string{"shop=::/0"}, "::/0 is the default route"},
		{[]string{"shop=10.1.0.0/24", "shop=10.1.1.0/24"}, "namespace shop is given twice"},
		{[]string{"shop=10.1.0.0/16", "news=10.1.7.0/24"}, "10.1.7.0/24 overlaps with 10.1.0.0/16 of namespace shop"},
	} {
		shares, err := ParseShares(c.texts)
		got := fmt.Sprint(shares)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%q: %s, want %s", c.texts, got, c.want)
		}
	}
}
