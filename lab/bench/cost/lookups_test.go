// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"os"
	"reflect"
	"testing"

	"fairlead.io/fairlead/lab/bench"
)

func TestParseLayout(t *testing.T) {
	got, err := parseLayout("16384x32>65536x64,65536x16")
	if want := (layout{{{16384, 32}}, {{65536, 64}, {65536, 16}}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("layout %v, error %v, want %v", got, err, want)
	}
	for _, text := range []string{"", "1", "x", "1x", "0x4", "1x3", "1x4>", "1x4,", "a x4", "4294967296x4"} {
		if l, err := parseLayout(text); err == nil {
			t.Errorf("%q was read as %v", text, l)
		}
	}
}

func TestLookups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	r, err := Lookups(t.Context(), bench.Config{}, []string{"16x4", "16x64>16x4,16x64>16x8"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 2 || r.Results[1].Median <= 0 {
		t.Errorf("results %v", r.Results)
	}
}
