// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"slices"
	"strings"
	"testing"
)

func TestMask(t *testing.T) {
	for _, c := range []struct {
		kernel string // as the kernel prints it
		list   string
		mask   string
	}{
		{"0000", "", "0"},
		{"0001", "0", "1"},
		{"fefe", "1-7,9-15", "fefe"},
		{"ffffffff", "0-31", "ffffffff"},
		{"1,00000000", "32", "00000001,00000000"},
		{"0,0003fdfe", "1-8,10-17", "00000000,0003fdfe"},
		{"00000000,07fc01ff", "0-8,18-26", "00000000,07fc01ff"},
		{"f,f803fe00", "9-17,27-35", "0000000f,f803fe00"},
		{"80000000,00000000,00000001", "0,95", "80000000,00000000,00000001"},
	} {
		cpus, err := parseMask(c.kernel)
		list, mask := formatList(cpus), formatMask(cpus, c.kernel)
		if err != nil || list != c.list || mask != c.mask {
			t.Errorf("%s: list %q, mask %q (%v), want %q, %q", c.kernel, list, mask, err, c.list, c.mask)
		}
		listed, err := parseList(c.list)
		if err != nil || !slices.Equal(listed, cpus) {
			t.Errorf("%s: %v (%v), want %v", c.list, listed, err, cpus)
		}
		if now := (Setting{Now: c.kernel, kind: xps}); !now.is(c.mask) || now.is("2") {
			t.Errorf("%s and %s differ, or are the same as 2", c.kernel, c.mask)
		}
	}
}

func TestWrongCPUs(t *testing.T) {
	for _, mask := range []string{"", ",", "x", "1,", "-1", "100000000", "0x1"} {
		if cpus, err := parseMask(mask); err == nil {
			t.Errorf("mask %q: %v", mask, cpus)
		}
	}
	for _, list := range []string{",", "1-", "-1", "3-1", "1,1", "2,1", "0-8192", "0-99999999999", "a", "0 1"} {
		if cpus, err := parseList(list); err == nil {
			t.Errorf("list %q: %v", list, cpus)
		}
	}
}

// FuzzCPUs parses lists and masks; those that are right survive a change of form.
func FuzzCPUs(f *testing.F) {
	for _, seed := range []string{"", "0", "0-8,18-26", "0-8191", "8192", "fefe", "f,f803fe00", "1,,2", "7-3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) ([]int, error){parseList, parseMask} {
			cpus, err := parse(text)
			if err != nil {
				continue
			}
			listed, errList := parseList(formatList(cpus))
			masked, errMask := parseMask(formatMask(cpus, strings.Repeat(",", maxCPUs/32-1)))
			if errList != nil || errMask != nil || !slices.Equal(listed, cpus) || !slices.Equal(masked, cpus) {
				t.Errorf("%q: %v, as list %v (%v), as mask %v (%v)", text, cpus, listed, errList, masked, errMask)
			}
		}
	})
}
