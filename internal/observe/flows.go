// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Flows are recorded flows: those that a change of backends might move
// (DESIGN.md §5.2). Others need no record.
type Flows struct {
	// Flows are those asked for, the latest first. Matching is their number;
	// if it is larger than that of Flows, the list was cut.
	Flows    []Flow `json:"flows"`
	Matching int    `json:"matching"`
	// Records counts all of them, Capacity those that there is room for.
	Records  int `json:"records"`
	Capacity int `json:"capacity"`
	// Tracking sums up over all services what packets found.
	Tracking dataplane.Tracking `json:"tracking"`
}

// Flow is one of them.
type Flow struct {
	// Service is empty if it is no longer desired.
	Service string `json:"service"`
	dataplane.Flow
}

// FlowQuery says which flows are wanted. The zero value of a field stands for
// all of them.
type FlowQuery struct {
	Service string
	Client  netip.Prefix
	Limit   int
}

// maxFlows bounds an answer, about 250 bytes a flow.
const maxFlows = 100_000

func (q FlowQuery) values() url.Values {
	values := url.Values{}
	if q.Service != "" {
		values.Set("service", q.Service)
	}
	if q.Client.IsValid() {
		values.Set("client", q.Client.String())
	}
	if q.Limit > 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	return values
}

// flowQuery reads what values writes.
func (a *Agent) flowQuery(r *http.Request) (dataplane.FlowQuery, error) {
	values := r.URL.Query()
	query := dataplane.FlowQuery{Limit: maxFlows}
	if name := values.Get("service"); name != "" {
		vip, found := a.serviceNamed(name)
		if !found {
			return query, fmt.Errorf("service %q: not here", name)
		}
		query.VIP = vip
	}
	var err error
	if text := values.Get("client"); text != "" {
		if query.Client, err = netip.ParsePrefix(text); err != nil {
			return query, err
		}
	}
	if text := values.Get("limit"); text != "" {
		if query.Limit, err = limitOf(text); err != nil {
			return query, err
		}
	}
	return query, nil
}

func limitOf(text string) (int, error) {
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > maxFlows {
		return 0, fmt.Errorf("limit %q: want 1 to %d", text, maxFlows)
	}
	return limit, nil
}

func (s *Server) flows(w http.ResponseWriter, r *http.Request) {
	query, err := s.agent.flowQuery(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	flows, err := s.agent.flows(r.Context(), query)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.answer(w, flows)
}

func (a *Agent) flows(ctx context.Context, query dataplane.FlowQuery) (Flows, error) {
	found, err := a.Flows(ctx, query)
	if err != nil {
		return Flows{}, err
	}
	stats, err := a.Stats(ctx)
	if err != nil {
		return Flows{}, err
	}
	names := map[lb.VIP]string{}
	for _, entry := range a.Desired().Services {
		names[entry.Service.VIP] = entry.Service.Name
	}
	shown := Flows{Flows: make([]Flow, len(found.Flows)), Matching: found.Matching, Records: found.Records, Capacity: found.Capacity}
	for i, flow := range found.Flows {
		shown.Flows[i] = Flow{Service: names[flow.VIP], Flow: flow}
	}
	for _, service := range stats.Services {
		shown.Tracking = shown.Tracking.Add(service.Tracking)
	}
	return shown, nil
}

// serviceName is that of the desired service with a VIP, empty without one.
func (a *Agent) serviceName(vip lb.VIP) string {
	for _, entry := range a.Desired().Services {
		if entry.Service.VIP == vip {
			return entry.Service.Name
		}
	}
	return ""
}

func (a *Agent) serviceNamed(name string) (lb.VIP, bool) {
	for _, entry := range a.Desired().Services {
		if entry.Service.Name == name {
			return entry.Service.VIP, true
		}
	}
	return lb.VIP{}, false
}

// WriteFlows prints flows for people.
func WriteFlows(w io.Writer, flows Flows) error {
	err := writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "SERVICE\tVIP\tCLIENT\tBACKEND\tAGE")
		for _, f := range flows.Flows {
			backend := "left"
			if f.Backend.IsValid() {
				backend = f.Backend.String()
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", f.Service, f.VIP, f.Client, backend, f.Age.Round(time.Second))
		}
	})
	if err != nil {
		return err
	}
	if shown := len(flows.Flows); flows.Matching > shown {
		fmt.Fprintf(w, "the latest %d of %d: --limit shows more\n", shown, flows.Matching)
	}
	tracking := flows.Tracking
	_, err = fmt.Fprintf(w, "\n%s recorded, room for %d; %s unstable\nhits %d, misses %d, inserts %d, evictions %d\n",
		counted(flows.Records, "flow", "flows"), flows.Capacity, counted(tracking.Unstable, "ring entry", "ring entries"),
		tracking.Hits, tracking.Misses, tracking.Inserts, tracking.Evictions)
	return err
}
