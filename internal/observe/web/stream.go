// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
)

// viewerTimeout bounds the writing of an update.
const viewerTimeout = 5 * time.Second

// update is the state that a live view gets each second.
type update struct {
	Time time.Time `json:"time"`
	// Error is why the counters, which are zero then, couldn't be read.
	Error string `json:"error,omitempty"`
	// NotReady is why the agent should get no traffic; empty if it should.
	NotReady string         `json:"notReady,omitempty"`
	Status   observe.Status `json:"status"`
	Totals   observe.Totals `json:"totals"`
	// Services are the selection's, out of Matching ones.
	Services []row             `json:"services"`
	Matching int               `json:"matching"`
	Backends []observe.Backend `json:"backends"`
	Routes   announced         `json:"routes"`
	// History comes with the first update, Events when there is a new one.
	History *observe.History `json:"history,omitempty"`
	Events  []observe.Event  `json:"events,omitempty"`
}

// row is a service of a live view.
type row struct {
	observe.Service
	Condition string `json:"condition"`
	// History comes when the service comes into the view.
	History observe.Points `json:"history,omitempty"`
}

// viewer is one live view, and the record of the events and services that it has.
type viewer struct {
	server    *Server
	selection selection
	welcomed  bool
	events    uint64
	known     map[lb.VIP]bool
}

// stream sends an update a second until the client leaves or the agent stops:
// server-sent events (HTML Living Standard, section 9.2).
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	selection, err := readSelection(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d live views are open: no more at once", maxStreams), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	v := &viewer{server: s, selection: selection}
	v.run(w, r)
}

func (v *viewer) run(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	// The request has been read. From now on reading only notices that the client left.
	if control.SetReadDeadline(time.Time{}) != nil {
		return
	}
	var latest *observe.Snapshot
	for {
		var err error
		if latest, err = v.server.Observer.Next(r.Context(), latest); err != nil {
			return
		}
		body, err := json.Marshal(v.update(latest))
		if err != nil || control.SetWriteDeadline(time.Now().Add(viewerTimeout)) != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", body); err != nil || control.Flush() != nil {
			return
		}
	}
}

// update returns the next update of the viewer from a snapshot.
func (v *viewer) update(m *observe.Snapshot) update {
	observer := v.server.Observer
	services, found := v.selection.services(m.Services())
	u := update{
		Time: m.Time, Status: m.Status(), Totals: m.Totals(),
		Services: v.rows(services), Matching: found,
		Backends: v.selection.backends(m, services),
		Routes:   announcedIn(m),
	}
	if m.Err != nil {
		u.Error = m.Err.Error()
	}
	if err := v.server.Ready(); err != nil {
		u.NotReady = err.Error()
	}
	events, count := observer.Events()
	if count != v.events {
		u.Events, v.events = events, count
	}
	if !v.welcomed {
		history := observer.History()
		u.History, v.welcomed = &history, true
	}
	return u
}

// rows adds the history to services that are new to the viewer. Only services in view
// count as known.
func (v *viewer) rows(services []observe.Service) []row {
	rows := make([]row, len(services))
	known := make(map[lb.VIP]bool, len(services))
	for i, s := range services {
		rows[i] = row{Service: s, Condition: s.Condition()}
		if !v.known[s.VIP] {
			rows[i].History = v.server.Observer.ServiceHistory(s.VIP)
		}
		known[s.VIP] = true
	}
	v.known = known
	return rows
}

// Limits of a live view of an agent with thousands of services.
const (
	maxSelected = 100 // services
	maxOpen     = 16  // services with their backends
	maxBackends = 256 // of each open service
	// maxFilter is the longest text to search for, in bytes.
	maxFilter = 200
)

// selection has the services that one live view shows.
type selection struct {
	filter string
	limit  int
	// open are the names of the services whose backends are shown.
	open []string
}

func readSelection(query url.Values) (selection, error) {
	s := selection{filter: query.Get("filter"), open: query["open"]}
	if len(s.filter) > maxFilter {
		return s, fmt.Errorf("filter: %d bytes are too many: want at most %d", len(s.filter), maxFilter)
	}
	if len(s.open) > maxOpen {
		return s, fmt.Errorf("open: %d services are too many: want at most %d", len(s.open), maxOpen)
	}
	var err error
	s.limit, err = number(query, "limit", maxSelected, 1, maxSelected)
	return s, err
}

// matching keeps the services of which every word of the filter is a part: of
// the name, the VIP, the forwarding mode or the condition.
func matching(services []observe.Service, filter string) []observe.Service {
	words := strings.Fields(strings.ToLower(filter))
	if len(words) == 0 {
		return slices.Clone(services)
	}
	var kept []observe.Service
	for _, s := range services {
		text := strings.ToLower(fmt.Sprintf("%s %s %s %s", s.Name, s.VIP, s.ForwardText(), s.Condition()))
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
			kept = append(kept, s)
		}
	}
	return kept
}

// services returns the services that the view shows, and how many match. Open
// services come first, then unhealthy ones, then the busiest.
func (s selection) services(all []observe.Service) (shown []observe.Service, found int) {
	shown = matching(all, s.filter)
	found = len(shown)
	if found <= s.limit {
		return shown, found
	}
	rank := func(service observe.Service) int {
		switch {
		case slices.Contains(s.open, service.Name):
			return 0
		case service.Condition() != observe.ConditionOK:
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(shown, func(a, b observe.Service) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.PacketsPerSecond, a.PacketsPerSecond))
	})
	return shown[:s.limit], found
}

// backends returns the backends of the open services: of each, the unused ones first, then the busiest.
func (s selection) backends(m *observe.Snapshot, shown []observe.Service) []observe.Backend {
	list := []observe.Backend{}
	for _, service := range shown {
		if !slices.Contains(s.open, service.Name) {
			continue
		}
		some := m.Backends(func(vip lb.VIP) bool { return vip == service.VIP })
		if len(some) > maxBackends {
			slices.SortStableFunc(some, func(a, b observe.Backend) int {
				return cmp.Or(rank(a.InUse)-rank(b.InUse), cmp.Compare(b.PacketsPerSecond, a.PacketsPerSecond))
			})
			some = some[:maxBackends]
		}
		list = append(list, some...)
	}
	return list
}

// A live view shows so many announcements, and so many peers. An aggregate may be
// announced for thousands of services: so many of them are named.
const (
	maxRoutes = 100
	maxNamed  = 3
)

// announced is a part of an agent's routes and peers; the status counts all.
type announced struct {
	Announcements []announcement  `json:"announcements"`
	Peers         []bgp.PeerState `json:"peers"`
}

// announcement is one of a live view, with how many Services there are.
type announcement struct {
	observe.Announcement
	ServiceCount int    `json:"serviceCount"`
	Condition    string `json:"condition"`
}

// announcedIn returns the routes and peers of a live view. If there are too many, withheld
// routes and peers without a session come first.
func announcedIn(m *observe.Snapshot) announced {
	routes := m.Routes()
	a := announced{Announcements: []announcement{}}
	for _, shown := range foremost(routes.Announcements, func(a observe.Announcement) bool { return a.Announced }) {
		all := len(shown.Services)
		shown.Services = shown.Services[:min(all, maxNamed)]
		a.Announcements = append(a.Announcements, announcement{shown, all, shown.Condition()})
	}
	a.Peers = foremost(routes.Peers, func(p bgp.PeerState) bool { return p.State == bgp.Established })
	return a
}

// foremost returns the list, or its first maxRoutes elements after sorting: elements for
// which well is false come first.
func foremost[T any](list []T, well func(T) bool) []T {
	if len(list) <= maxRoutes {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int { return rank(well(a)) - rank(well(b)) })
	return list[:maxRoutes]
}

func rank(well bool) int {
	if well {
		return 1
	}
	return 0
}
