// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"testing"

	"fairlead.io/fairlead/internal/bgp/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }
