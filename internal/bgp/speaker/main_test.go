// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"testing"

	"fairlead.io/fairlead/lab/netlab"
)

func TestMain(m *testing.M) {
	if err := netlab.Isolate(); err != nil {
		panic(err)
	}
	m.Run()
}
