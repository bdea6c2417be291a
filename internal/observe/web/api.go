// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"fairlead.io/fairlead/internal/httpd"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
)

// maxRows is how long a list in an answer can be, and is unless less is asked
// for. The header totalHeader has the length of the whole list.
const (
	maxRows     = 1000
	totalHeader = "X-Total-Count"
)

// latest returns the latest snapshot, unless its counters couldn't be read.
func (s *Server) latest(r *http.Request) (*observe.Snapshot, error) {
	m, err := s.Observer.Next(r.Context(), nil)
	if err == nil && m.Err != nil {
		err = fmt.Errorf("counters: %w", m.Err)
	}
	if err != nil {
		return nil, httpd.Errorf(http.StatusServiceUnavailable, "%w", err)
	}
	return m, nil
}

func (s *Server) status(_ http.ResponseWriter, r *http.Request) (any, error) {
	m, err := s.latest(r)
	if err != nil {
		return nil, err
	}
	return m.Status(), nil
}

func (s *Server) services(w http.ResponseWriter, r *http.Request) (any, error) {
	m, err := s.latest(r)
	if err != nil {
		return nil, err
	}
	return part(w, r, matching(m.Services(), r.URL.Query().Get("filter")))
}

// backends returns the backends of one service: all of them may be too many.
func (s *Server) backends(w http.ResponseWriter, r *http.Request) (any, error) {
	m, vip, err := s.service(r)
	if err != nil {
		return nil, err
	}
	return part(w, r, m.Backends(func(v lb.VIP) bool { return v == vip }))
}

// history returns the history of the totals, or of one service.
func (s *Server) history(_ http.ResponseWriter, r *http.Request) (any, error) {
	if !r.URL.Query().Has("service") {
		return s.Observer.History(), nil
	}
	_, vip, err := s.service(r)
	if err != nil {
		return nil, err
	}
	return map[string]observe.Points{"packetsPerSecond": s.Observer.ServiceHistory(vip)}, nil
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) (any, error) {
	return part(w, r, s.Observer.Events())
}

// routes answers with a part of the announcements; of peers there are maxRows at
// most.
func (s *Server) routes(w http.ResponseWriter, r *http.Request) (any, error) {
	m, err := s.latest(r)
	if err != nil {
		return nil, err
	}
	routes := m.Routes()
	routes.Announcements, err = part(w, r, routes.Announcements)
	routes.Peers = routes.Peers[:min(len(routes.Peers), maxRows)]
	return routes, err
}

// service returns the latest snapshot with the VIP of the service that a request names.
func (s *Server) service(r *http.Request) (m *observe.Snapshot, vip lb.VIP, err error) {
	if m, err = s.latest(r); err != nil {
		return nil, vip, err
	}
	name := r.URL.Query().Get("service")
	for _, service := range m.Services() {
		if service.Name == name {
			return m, service.VIP, nil
		}
	}
	return nil, vip, httpd.Errorf(http.StatusNotFound, "service %q: not here", name)
}

// part returns the elements of a list from offset on, limit elements at most.
func part[T any](w http.ResponseWriter, r *http.Request, list []T) ([]T, error) {
	query := r.URL.Query()
	offset, err := number(query, "offset", 0, 0, len(list))
	if err != nil {
		return nil, err
	}
	limit, err := number(query, "limit", maxRows, 1, maxRows)
	if err != nil {
		return nil, err
	}
	w.Header().Set(totalHeader, strconv.Itoa(len(list)))
	if list == nil {
		return []T{}, nil
	}
	return list[offset:min(len(list), offset+limit)], nil
}

// number reads a query's whole number from low to high.
func number(query url.Values, name string, otherwise, low, high int) (int, error) {
	text := query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return low, httpd.Errorf(http.StatusBadRequest, "%s %q: want %d to %d", name, text, low, high)
	}
	return n, nil
}
