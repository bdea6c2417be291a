// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.io/fairlead/internal/bgp"
)

// Who is no agent shows the same of its peers as an agent, at each scrape anew.
func TestPeers(t *testing.T) {
	states := routes().Peers
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(Peers(func() []bgp.PeerState { return states }))
	want := `
# HELP fairlead_bgp_bfd_up 1 while the BFD session with the peer is up. Without BFD there is none.
# TYPE fairlead_bgp_bfd_up gauge
fairlead_bgp_bfd_up{peer="10.0.2.1"} 1
# HELP fairlead_bgp_session_up 1 while the session with the peer is established.
# TYPE fairlead_bgp_session_up gauge
fairlead_bgp_session_up{peer="10.0.2.1"} 1
fairlead_bgp_session_up{peer="fd00:2::1"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fairlead_bgp_session_up", "fairlead_bgp_bfd_up"); err != nil {
		t.Error(err)
	}
	states = nil
	if shown, err := testutil.GatherAndCount(registry); err != nil || shown != 0 {
		t.Errorf("%d samples without peers: %v", shown, err)
	}
}

func TestStateNumbers(t *testing.T) {
	for state, want := range map[bgp.SessionState]float64{
		bgp.Idle: 1, bgp.Connect: 2, bgp.Active: 3, bgp.OpenSent: 4, bgp.OpenConfirm: 5, bgp.Established: 6,
	} {
		if got := stateNumber(state); got != want {
			t.Errorf("%s is %v, want %v", state, got, want)
		}
	}
}
