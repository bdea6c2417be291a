// SPDX-License-Identifier: Apache-2.0

package lb_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// Names of several namespaces have numbers of their own within the mask, however they come and go,
// and keep them while they are held.
func TestMarks(t *testing.T) {
	const mask = 0x0a00_1100
	marks, held, numbers := lb.NewMarks[int](), map[int]string{}, map[string]uint32{}
	for range 10_000 {
		holder, namespace, mark := rand.IntN(12), fmt.Sprint("n", rand.IntN(3)), rand.Uint32N(5)
		number := marks.Set(holder, namespace, mark, mask)
		delete(held, holder)
		name := ""
		if mark != 0 {
			name = fmt.Sprint(namespace, mark)
			held[holder] = name
		}
		users := map[string]bool{}
		for _, name := range held {
			users[name] = true
		}
		for name := range numbers {
			if !users[name] {
				delete(numbers, name)
			}
		}
		switch other, known := numbers[name]; {
		case number&^mask != 0:
			t.Fatalf("%#x isn't in the mask", number)
		case known && other != number, mark == 0 && number != 0:
			t.Fatalf("%s: %#x, before %#x", name, number, other)
		case number != 0:
			numbers[name] = number
		}
		unique := map[uint32]bool{}
		for _, number := range numbers {
			unique[number] = true
		}
		if len(unique) != len(numbers) {
			t.Fatalf("numbers %v", numbers)
		}
		if mark != 0 && number == 0 && len(numbers) < 15 {
			t.Fatalf("no number for %s, though only %d of 15 are in use", name, len(numbers))
		}
	}
	if number := marks.Set(0, "n0", 1, 0); number != 0 {
		t.Errorf("%#x without a mask", number)
	}
	if a, b := marks.Set(100, "x", 7, 0xff00), lb.NewMarks[string]().Set("other", "x", 7, 0xff00); a != b || a == 0 {
		t.Errorf("%#x, after a restart %#x", a, b)
	}
}
