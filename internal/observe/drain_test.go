// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/golden"
)

func TestDrainTable(t *testing.T) {
	target := func(service, backend string) store.Target {
		id, _ := netip.ParseAddrPort(backend)
		return store.Target{Service: service, Backend: id}
	}
	drains := []observe.Drain{
		{Drain: store.Drain{Since: started}, Desired: true, Flows: 12, PacketsPerSecond: 1500},
		{Drain: store.Drain{Target: target("web", ""), Since: started}, Desired: true},
		{Drain: store.Drain{Target: target("web", "10.0.0.21:80"), Since: started}, Desired: true, Flows: 3, PacketsPerSecond: 20, Silent: 9 * time.Minute},
		{Drain: store.Drain{Target: target("gone", ""), Since: started}},
	}
	text := observe.FormatDrains(drains)
	for _, d := range drains {
		text += d.Progress() + "\n"
	}
	golden.File(t, "testdata/drains.txt", text)
}
