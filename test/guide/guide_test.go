// SPDX-License-Identifier: Apache-2.0

package guide

import "testing"

// Compare ignores differences between clusters, and no others.
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
		if err := Compare(shown, printed); (err == nil) != want {
			t.Errorf("%q: %v, want agreement %t", shown, err, want)
		}
	}
}
