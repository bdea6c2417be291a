// SPDX-License-Identifier: Apache-2.0

package table

import (
	"os"
	"testing"
)

// openTables opens tables that aren't pinned; a capacity of 0 is the default. Session
// tables get their size, too.
func openTables(t *testing.T, capacity Capacity) *Tables {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	tables, err := Open("", capacity.OrDefault(), nil)
	must(t, err)
	t.Cleanup(func() { must(t, tables.Close()) })
	must(t, GrowSessions(tables))
	return tables
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
