// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		list string
		want [][]string
	}{
		"both":            {"a fmt\nb testing " + crowded + "\nc\n", [][]string{{"-race", "a", "c"}, {"-race", "b"}}},
		"nothing crowded": {"a fmt\n", [][]string{{"-race", "a"}}},
		"only what is":    {"b " + crowded + "\n", [][]string{{"-race", "b"}}},
		"whole clusters":  {whole + "b " + crowded + "\nc " + crowded + "\n", [][]string{{"-race", "c"}, {"-p=1", "-race", whole + "b"}}},
		"longest first": {
			"a\n" + module + "internal/dataplane/xdp\nb\n" + module + "test/e2e\n",
			[][]string{{"-race", module + "test/e2e", module + "internal/dataplane/xdp", "a", "b"}},
		},
		"the package's own": {crowded + " " + crowded + "\n", [][]string{{"-p=1", "-race", crowded}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, plan([]string{"-race"}, c.list)); diff != "" {
				t.Errorf("rounds (-want +got):\n%s", diff)
			}
		})
	}
}

// What isn't a pattern of packages is left to go test.
func TestRounds(t *testing.T) {
	for name, c := range map[string]struct{ args, want []string }{
		"no pattern":   {[]string{"-run", "TestA"}, []string{"-run", "TestA"}},
		"this package": {[]string{"-run", "TestA", "./."}, []string{"-run", "TestA", "fairlead.io/fairlead/scripts/testsum"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := rounds(t.Context(), c.args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]string{c.want}, got); diff != "" {
				t.Errorf("rounds (-want +got):\n%s", diff)
			}
		})
	}
}
