// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"slices"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
)

// A live view shows so many announcements, and so many peers. An aggregate may be
// announced for thousands of services: so many of them are named.
const (
	maxRoutes = 100
	maxNamed  = 3
)

// announced is a part of what an agent announces, and of its peers; the status
// has the numbers of all.
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

// announcedIn is what a live view shows: if there is too much of it, what is not
// in force comes first.
func announcedIn(m *observe.Moment) announced {
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

// foremost is the list, or if it is longer than maxRoutes a part of it: first
// those that are not well, else in its order.
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

// routes answers with a part of the announcements; of peers there are maxRows at
// most.
func (s *Server) routes(w http.ResponseWriter, r *http.Request) {
	m := s.moment(w, r)
	if m == nil {
		return
	}
	routes := m.Routes()
	var ok bool
	if routes.Announcements, ok = part(w, r.URL.Query(), routes.Announcements); !ok {
		return
	}
	routes.Peers = routes.Peers[:min(len(routes.Peers), maxRows)]
	s.answer(w, routes)
}
