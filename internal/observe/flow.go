// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"io"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Flows are recorded flows: those that a change of backends might move. Others need
// no record.
type Flows struct {
	// Flows match the query, the latest first. Matching is the number of matches; if it is
	// larger than the length of Flows, the list was cut.
	Flows    []Flow `json:"flows"`
	Matching int    `json:"matching"`
	// Records counts all recorded flows, Capacity the most that can be recorded.
	Records  int `json:"records"`
	Capacity int `json:"capacity"`
	// Tracking is the sum of all services' counters.
	Tracking dataplane.Tracking `json:"tracking"`
}

// Flow is a recorded flow.
type Flow struct {
	// Service is empty if it is no longer desired.
	Service string `json:"service"`
	dataplane.Flow
}

// Flows names the services of recorded flows.
func (s *Snapshot) Flows(found dataplane.Flows) Flows {
	names := map[lb.VIP]string{}
	for _, entry := range s.desired.Services {
		names[entry.Service.VIP] = entry.Service.Name
	}
	shown := Flows{Flows: make([]Flow, len(found.Flows)), Matching: found.Matching, Records: found.Records, Capacity: found.Capacity}
	for i, flow := range found.Flows {
		shown.Flows[i] = Flow{Service: names[flow.VIP], Flow: flow}
	}
	for _, service := range s.stats.Services {
		shown.Tracking = shown.Tracking.Add(service.Tracking)
	}
	return shown
}

// backend names the flow's backend, or is "left" if that was removed.
func (f Flow) backend() string {
	if !f.Backend.IsValid() {
		return "left"
	}
	return f.Backend.String()
}

// FormatFlows is a table of flows, with counts.
func FormatFlows(flows Flows) string {
	text := table(func(t io.Writer) {
		fmt.Fprintln(t, "SERVICE\tVIP\tCLIENT\tBACKEND\tAGE")
		for _, f := range flows.Flows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", f.Service, f.VIP, f.Client, f.backend(), f.Age.Round(time.Second))
		}
	})
	if shown := len(flows.Flows); flows.Matching > shown {
		text += fmt.Sprintf("the latest %d of %d: --limit shows more\n", shown, flows.Matching)
	}
	tracking := flows.Tracking
	return text + fmt.Sprintf("\n%s recorded, room for %d; %s unstable\nhits %d, misses %d, inserts %d, unrecorded %d, evictions %d\n",
		counted(flows.Records, "flow", "flows"), flows.Capacity, counted(tracking.Unstable, "ring entry", "ring entries"),
		tracking.Hits, tracking.Misses, tracking.Inserts, tracking.Unrecorded, tracking.Evictions)
}
