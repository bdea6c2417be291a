// SPDX-License-Identifier: Apache-2.0

package observe

import "testing"

func TestHuman(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.2: "<1", 1: "1", 999: "999", 999.4: "999", 999.6: "1.00k", 1000: "1.00k",
		1234: "1.23k", 9994: "9.99k", 9996: "10.0k", 12345: "12.3k", 99949: "99.9k", 99960: "100k",
		999400: "999k", 999500: "1.00M", 3.5e6: "3.50M", 1e10: "10.0G", 1e21: "1000E", -1: "0",
	} {
		if got := human(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
	if got := bits(125e6); got != "1.00G" {
		t.Errorf("a gigabit is %s", got)
	}
}

func TestCounted(t *testing.T) {
	for n, want := range []string{"0 entries", "1 entry", "2 entries"} {
		if got := counted(n, "entry", "entries"); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
