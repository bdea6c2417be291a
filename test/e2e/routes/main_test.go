// SPDX-License-Identifier: Apache-2.0

// Package routes_test announces VIPs to real routers and to hostile peers.
package routes_test

import (
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// patient has BFD wait for three seconds, as the sessions' hold timers do: for tests in which no
// peer hangs. On a busy machine packets of BFD may be later than the 300 ms of the labs.
func patient(topology netlab.Topology) netlab.Topology {
	for _, h := range topology.Hosts {
		if h.Agent == nil || h.Agent.BGP == nil {
			continue
		}
		for i := range h.Agent.BGP.Peers {
			if p := &h.Agent.BGP.Peers[i]; p.BFD != nil {
				p.BFD = &bgp.BFD{Interval: time.Second, Multiplier: 3}
			}
		}
	}
	return topology
}

// lab is a lab with the checks of this package.
type lab struct{ *harness.Lab }

func bringUp(t *testing.T, label string, topology netlab.Topology) *lab {
	t.Helper()
	return &lab{harness.BringUp(t, label, topology)}
}
