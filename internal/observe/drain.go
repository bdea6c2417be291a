// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"io"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// Drain is one drain and how far it has come.
type Drain struct {
	store.Drain
	// Desired is set if the target is in the configuration.
	Desired bool `json:"desired"`
	// Flows is the number of live recorded flows that are left.
	Flows int `json:"flows"`
	// PacketsPerSecond still arrive: for the target's backends, or for any VIP of
	// the node.
	PacketsPerSecond float64 `json:"packetsPerSecond"`
	// Silent is how much longer a flow that has sent nothing since the drain began
	// may be there without being seen; it is recorded as soon as it speaks.
	Silent time.Duration `json:"silent"`
}

// Drains shows all drains; flows are the live recorded flows.
func (s *Snapshot) Drains(flows dataplane.FlowCounts) []Drain {
	shown := make([]Drain, len(s.desired.Drains))
	for i, d := range s.desired.Drains {
		shown[i] = s.drain(d, flows, time.Now())
	}
	return shown
}

// drain shows one drain at a time.
func (s *Snapshot) drain(d store.Drain, flows dataplane.FlowCounts, now time.Time) Drain {
	shown := Drain{Drain: d}
	if d.Target == (store.Target{}) {
		shown.Desired = true
	}
	for _, e := range s.desired.Services {
		svc := e.Configured
		if d.Service != "" && d.Service != svc.Name {
			continue
		}
		for _, b := range svc.Backends {
			if d.Backend.IsValid() && d.Backend != b.ID() {
				continue
			}
			shown.Flows += flows[svc.VIP][b.ID()]
			shown.PacketsPerSecond += s.rates.backend(svc.VIP, b.ID()).PacketsPerSecond
			shown.Desired = true
		}
		if d.Service != "" {
			shown.Desired = shown.Desired || !d.Backend.IsValid()
			shown.Silent = unseen(svc, d.Since, now)
		}
	}
	return shown
}

// unseen is how much longer flows of a service may be there that have sent
// nothing since a change: until they are idle. Where every flow is recorded there
// are none.
func unseen(svc *lb.Service, changed, now time.Time) time.Duration {
	if svc.Tracking == lb.TrackingFull {
		return 0
	}
	return max(0, svc.Idle()-now.Sub(changed)).Round(time.Second)
}

// FormatDrains is a table of drains in the order given.
func FormatDrains(drains []Drain) string {
	return table(func(t io.Writer) {
		fmt.Fprintln(t, "DRAINED\tSINCE\tFLOWS\tPACKETS/S\tSTATUS")
		for _, d := range drains {
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", d.Target, d.Since.Format(time.RFC3339), d.Flows, human(d.PacketsPerSecond), d.condition())
		}
	})
}

// Progress describes how far the drain has come, in one line.
func (d Drain) Progress() string {
	return fmt.Sprintf("%s: %s left, %s packets/s; %s", d.Target, counted(d.Flows, "flow", "flows"), human(d.PacketsPerSecond), d.condition())
}

// condition describes the state that the counts don't show.
func (d Drain) condition() string {
	switch {
	case !d.Desired:
		return "not in the configuration"
	case d.Target == store.Target{}:
		return "packets that come are balanced"
	case d.Silent > 0:
		return fmt.Sprintf("flows that have been silent since may show up for another %s", d.Silent)
	}
	return "no other flows can be there"
}
