// SPDX-License-Identifier: Apache-2.0

package ecmp

import "testing"

func TestSumBacklogDrops(t *testing.T) {
	for text, want := range map[string]int{
		"2324233c 0002c079 000006a4\n2fd59c93 00000010 000008c4\n": 0x2c079 + 0x10,
		"00000001 00000000\n": 0,
	} {
		if got, err := sumBacklogDrops(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"1\n", "1 x\n", "\n"} {
		if got, err := sumBacklogDrops(text); err == nil {
			t.Errorf("%q: %d without an error", text, got)
		}
	}
}

// The kernel that runs the tests writes what is read.
func TestBacklogDrops(t *testing.T) {
	if n, err := backlogDrops(); err != nil || n < 0 {
		t.Errorf("%d, %v", n, err)
	}
}
