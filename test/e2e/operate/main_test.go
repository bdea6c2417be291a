// SPDX-License-Identifier: Apache-2.0

// Package operate_test acts as an operator: it restarts, reloads, drains and traces,
// kills servers, reads the status page and the metrics, and runs benches and the demo.
package operate_test

import (
	"testing"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// lab is a lab with the checks of this package.
type lab struct{ *harness.Lab }

func bringUp(t *testing.T, label string, topology netlab.Topology) *lab {
	t.Helper()
	return &lab{harness.BringUp(t, label, topology)}
}
