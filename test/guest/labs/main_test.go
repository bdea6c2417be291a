//go:build guest

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"testing"

	"fairlead.io/fairlead/test/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
