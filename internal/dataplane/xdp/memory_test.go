// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// documented is a row of the table in docs/memory.md.
var documented = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| [^|]* \\| (\\d+) \\| (\\d+) \\| (\\d+) \\|$")

// The documented arithmetic of the tables' memory is the kernel's, within 10 %,
// and tells of every table.
func TestMemoryIsAsDocumented(t *testing.T) {
	needRoot(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "memory.md"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlane(Config{}, fixedHops{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	rows := 0
	for _, row := range documented.FindAllStringSubmatch(string(text), -1) {
		rows++
		table := p.kernel.shared[row[1]]
		if table == nil {
			t.Errorf("there is no table %s", row[1])
			continue
		}
		elements, bytes, each := number(t, row[2]), number(t, row[3]), number(t, row[4])
		if elements != float64(table.MaxEntries()) {
			t.Errorf("table %s has %d elements, documented are %v", row[1], table.MaxEntries(), elements)
		}
		want := elements * (bytes + each*float64(ebpf.MustPossibleCPU()))
		have := memory(t, table)
		if have < 0.9*want || have > 1.1*want {
			t.Errorf("table %s takes %v bytes, documented are %v", row[1], have, want)
		}
	}
	if rows < 10 {
		t.Errorf("%d rows, want at least 10", rows)
	}
	for name := range p.kernel.shared {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("table %s is not documented", name)
		}
	}
}

func number(t *testing.T, digits string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// memory is what the kernel says a table takes, in bytes.
func memory(t *testing.T, table *ebpf.Map) float64 {
	t.Helper()
	info, err := table.Info()
	if err != nil {
		t.Fatal(err)
	}
	bytes, ok := info.Memlock()
	if !ok {
		t.Fatalf("table %s: the kernel doesn't say", table)
	}
	return float64(bytes)
}
