// SPDX-License-Identifier: Apache-2.0

package table

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// documented is a row of the table in docs/operations/memory.md.
var documented = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| [^|]* \\| (\\d+) \\| (\\d+) \\| (\\d+) \\|$")

// TestMemoryIsAsDocumented compares the rows of docs/operations/memory.md with the
// kernel's figures, within 10 %. Each table is documented, and has at most one row.
func TestMemoryIsAsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "operations", "memory.md"))
	must(t, err)
	all := openTables(t, Capacity{})
	seen := map[string]bool{}
	for _, row := range documented.FindAllStringSubmatch(string(text), -1) {
		if seen[row[1]] {
			t.Errorf("table %s is documented twice", row[1])
		}
		seen[row[1]] = true
		table := all.ByName[row[1]]
		if table == nil {
			t.Errorf("there is no table %s", row[1])
			continue
		}
		count, bytes, each := number(t, row[2]), number(t, row[3]), number(t, row[4])
		if n := elements(row[1], table); count != float64(n) {
			t.Errorf("table %s has %d elements, documented are %v", row[1], n, count)
		}
		want := count * (bytes + each*float64(ebpf.MustPossibleCPU()))
		have := kernelMemory(t, table)
		if have < 0.9*want || have > 1.1*want {
			t.Errorf("table %s takes %v bytes, documented are %v", row[1], have, want)
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d rows, want at least 10", len(seen))
	}
	for name := range all.ByName {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("table %s is not documented", name)
		}
	}
}

func number(t *testing.T, digits string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(digits, 64)
	must(t, err)
	return n
}

// kernelMemory returns a table's size according to the kernel, in bytes.
func kernelMemory(t *testing.T, table *ebpf.Map) float64 {
	t.Helper()
	info, err := table.Info()
	must(t, err)
	bytes, ok := info.Memlock()
	if !ok {
		t.Fatalf("table %s: the kernel doesn't say", table)
	}
	return float64(bytes)
}
