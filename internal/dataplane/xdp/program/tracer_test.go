// SPDX-License-Identifier: Apache-2.0

package program

import (
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
)

// A new table has to be given a place: seen by traces as it is, or their own.
func TestTracerTables(t *testing.T) {
	spec, err := table.LoadBalancer()
	must(t, err)
	own := tracerOwn(0)
	for name := range spec.Maps {
		_, private := own[name]
		if shared := slices.Contains(sharedWithTracer(), name); shared == private && !strings.HasPrefix(name, ".") {
			t.Errorf("table %s: shared with traces %t, their own %t", name, shared, private)
		}
	}
}
