// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"testing"

	"fairlead.io/fairlead/internal/bgp"
)

func TestStateNumbers(t *testing.T) {
	for state, want := range map[bgp.SessionState]float64{
		bgp.Idle: 1, bgp.Connect: 2, bgp.Active: 3, bgp.OpenSent: 4, bgp.OpenConfirm: 5, bgp.Established: 6,
	} {
		if got := stateNumber(state); got != want {
			t.Errorf("%s is %v, want %v", state, got, want)
		}
	}
}
