// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/httpd"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
)

// update is the state that the page polls each second.
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
	Events   []observe.Event   `json:"events"`
	// History is there on request.
	History *observe.History `json:"history,omitempty"`
}

// row is a service of the page.
type row struct {
	observe.Service
	Condition string `json:"condition"`
	// History is there on request, unless the service has been idle all the time.
	History observe.Points `json:"history,omitempty"`
}

// page answers with the selected part of the latest snapshot, also if its counters couldn't be read.
func (s *Server) page(_ http.ResponseWriter, r *http.Request) (any, error) {
	selection, err := readSelection(r.URL.Query())
	if err != nil {
		return nil, httpd.Errorf(http.StatusBadRequest, "%w", err)
	}
	m, err := s.Observer.Next(r.Context(), nil)
	if err != nil {
		return nil, httpd.Errorf(http.StatusServiceUnavailable, "%w", err)
	}
	services, found := selection.services(m.Services())
	u := update{
		Time: m.Time, Status: m.Status(), Totals: m.Totals(),
		Services: make([]row, len(services)), Matching: found,
		Backends: selection.backends(m, services),
		Routes:   announcedIn(m), Events: s.Observer.Events(),
	}
	for i, service := range services {
		u.Services[i] = row{Service: service, Condition: service.Condition()}
		if selection.history {
			u.Services[i].History = s.Observer.ServiceHistory(service.VIP)
		}
	}
	if selection.history {
		history := s.Observer.History()
		u.History = &history
	}
	if m.Err != nil {
		u.Error = m.Err.Error()
	}
	if err := s.Ready(); err != nil {
		u.NotReady = err.Error()
	}
	return u, nil
}

// Limits of the page of an agent with thousands of services.
const (
	maxSelected = 100 // services
	maxOpen     = 16  // services with their backends
	maxBackends = 256 // of each open service
	// maxFilter is the longest text to search for, in bytes.
	maxFilter = 200
)

// selection is the part of the state that a request selects.
type selection struct {
	filter string
	limit  int
	// open are the names of the services whose backends are shown.
	open []string
	// history says that the last minutes are wanted, too.
	history bool
}

func readSelection(query url.Values) (selection, error) {
	s := selection{filter: query.Get("filter"), open: query["open"], history: query.Has("history")}
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

// services returns the services that the page shows, and how many match. Open
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

// The page shows so many announcements, and so many peers. An aggregate may be
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

// announcement is one of the page, with how many Services there are.
type announcement struct {
	observe.Announcement
	ServiceCount int    `json:"serviceCount"`
	Condition    string `json:"condition"`
}

// announcedIn returns the routes and peers of the page. If there are too many, withheld
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
