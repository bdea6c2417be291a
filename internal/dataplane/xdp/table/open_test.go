// SPDX-License-Identifier: Apache-2.0

package table

import (
	"os"
	"testing"
)

// openTables opens tables that aren't pinned; what is 0 of their capacity has its default.
// Those of sessions have their size.
func openTables(t *testing.T, capacity Capacity) *Tables {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	tables, err := Open("", capacity.OrDefault(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tables.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := GrowSessions(tables); err != nil {
		t.Fatal(err)
	}
	return tables
}
