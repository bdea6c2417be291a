// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
)

// maxRows is how long a list in an answer can be, and is unless less is asked
// for. The header totalHeader has the length of the whole list.
const (
	maxRows     = 1000
	totalHeader = "X-Total-Count"
)

// latest returns the latest snapshot; without one the request has been answered.
func (s *Server) latest(w http.ResponseWriter, r *http.Request) *observe.Snapshot {
	m, err := s.Observer.Next(r.Context(), nil)
	if err == nil && m.Err != nil {
		err = fmt.Errorf("counters: %w", m.Err)
	}
	if err != nil {
		reject(w, http.StatusServiceUnavailable, "%v", err)
		return nil
	}
	return m
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	if m := s.latest(w, r); m != nil {
		s.answer(w, m.Status())
	}
}

func (s *Server) services(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if m := s.latest(w, r); m != nil {
		answerList(s, w, query, matching(m.Services(), query.Get("filter")))
	}
}

// backends are those of one service: all of them may be too many.
func (s *Server) backends(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	m := s.latest(w, r)
	if m == nil {
		return
	}
	if vip, found := vipOf(m, w, query); found {
		answerList(s, w, query, m.Backends(func(v lb.VIP) bool { return v == vip }))
	}
}

// history is that of the totals, or of one service.
func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if !query.Has("service") {
		s.answer(w, s.Observer.History())
		return
	}
	m := s.latest(w, r)
	if m == nil {
		return
	}
	if vip, found := vipOf(m, w, query); found {
		points := s.Observer.ServiceHistory(vip)
		s.answer(w, map[string]observe.Points{"packetsPerSecond": points})
	}
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	latest, _ := s.Observer.Events()
	answerList(s, w, r.URL.Query(), latest)
}

// vipOf is that of the service which the query names; without one the request
// has been answered.
func vipOf(m *observe.Snapshot, w http.ResponseWriter, query url.Values) (lb.VIP, bool) {
	name := query.Get("service")
	for _, service := range m.Services() {
		if service.Name == name {
			return service.VIP, true
		}
	}
	reject(w, http.StatusNotFound, "service %q: not here", name)
	return lb.VIP{}, false
}

// answerList answers with a part of a list.
func answerList[T any](s *Server, w http.ResponseWriter, query url.Values, list []T) {
	if list, ok := part(w, query, list); ok {
		s.answer(w, list)
	}
}

// part is that of a list from offset on, limit elements at most; false: the
// request has been answered.
func part[T any](w http.ResponseWriter, query url.Values, list []T) ([]T, bool) {
	offset, err := number(query, "offset", 0, 0, len(list))
	if err == nil {
		var limit int
		limit, err = number(query, "limit", maxRows, 1, maxRows)
		w.Header().Set(totalHeader, strconv.Itoa(len(list)))
		list = list[offset:min(len(list), offset+limit)]
	}
	if err != nil {
		reject(w, http.StatusBadRequest, "%v", err)
		return nil, false
	}
	if list == nil {
		list = []T{}
	}
	return list, true
}

// number reads a query's whole number from low to high.
func number(query url.Values, name string, otherwise, low, high int) (int, error) {
	text := query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return low, fmt.Errorf("%s %q: want %d to %d", name, text, low, high)
	}
	return n, nil
}

func (s *Server) answer(w http.ResponseWriter, shown any) { answer(w, s.Log, shown) }

// answer writes JSON.
func answer(w http.ResponseWriter, log *slog.Logger, shown any) {
	body, err := json.Marshal(shown)
	if err != nil {
		reject(w, http.StatusInternalServerError, "%v", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(append(body, '\n')); err != nil {
		log.Debug("client left", slog.Any("error", err))
	}
}

// routes answers with a part of the announcements; of peers there are maxRows at
// most.
func (s *Server) routes(w http.ResponseWriter, r *http.Request) {
	m := s.latest(w, r)
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
