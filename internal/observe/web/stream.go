// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/httpd"
)

// viewerTimeout is how long a viewer may take to take an update off.
const viewerTimeout = 5 * time.Second

// update is what a live view learns in one second.
type update struct {
	Time time.Time `json:"time"`
	// Error says why the counters, which are zero then, couldn't be read.
	Error string `json:"error,omitempty"`
	// NotReady says why the agent should get no traffic; empty if it should.
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

// viewer is one live view and what it knows already.
type viewer struct {
	server    *Server
	selection selection
	greeted   bool
	events    uint64
	known     map[lb.VIP]bool
}

// stream sends an update a second until the client leaves or the agent stops:
// server-sent events (HTML Living Standard, section 9.2).
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	selection, err := readSelection(r.URL.Query())
	if err != nil {
		reject(w, http.StatusBadRequest, "%v", err)
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		reject(w, http.StatusServiceUnavailable, "%d live views are open: no more at once", maxStreams)
		return
	}
	defer httpd.Keep(r.Context())()
	w.Header().Set("Content-Type", "text/event-stream")
	v := &viewer{server: s, selection: selection}
	v.run(w, r)
}

func (v *viewer) run(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	// The request is there: from now on only its sender's leaving is read.
	if control.SetReadDeadline(time.Time{}) != nil {
		return
	}
	var moment *observe.Moment
	for {
		var err error
		if moment, err = v.server.Observer.Next(r.Context(), moment); err != nil {
			return
		}
		body, err := json.Marshal(v.update(moment))
		if err != nil || control.SetWriteDeadline(time.Now().Add(viewerTimeout)) != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", body); err != nil || control.Flush() != nil {
			return
		}
	}
}

// update is what the viewer learns from a moment.
func (v *viewer) update(m *observe.Moment) update {
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
	if !v.greeted {
		history := observer.History()
		u.History, v.greeted = &history, true
	}
	return u
}

// rows adds to services what is new to the viewer: it is remembered for those
// in view only.
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
