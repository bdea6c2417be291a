// SPDX-License-Identifier: Apache-2.0

// Package traffic_test sends packets through balancers: in every mode, NAT and DSR
// included, over links that change, and through changes of agents and backends.
package traffic_test

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
