// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// maxDrainBytes is more than any name and address take.
const maxDrainBytes = 4 << 10

// change answers a request to drain, or undrain, a target.
func (s *Server) change(do func(r *http.Request, target DrainTarget) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var target DrainTarget
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxDrainBytes))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&target); err != nil {
			http.Error(w, fmt.Sprintf("target: %v", err), http.StatusBadRequest)
			return
		}
		// Routers may need longer than any other answer takes.
		patient := http.NewResponseController(w)
		if err := errors.Join(patient.SetReadDeadline(time.Time{}), patient.SetWriteDeadline(time.Time{})); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if err := do(r, target); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		}
	}
}

// drains answers with how far all drains have come.
func (s *Server) drains(w http.ResponseWriter, r *http.Request) {
	v, err := s.agent.look(r.Context(), s.observer.sampler.latest())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	flows, err := s.agent.CountFlows(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	shown := make([]Drain, len(v.desired.Drains))
	for i, d := range v.desired.Drains {
		shown[i] = v.drain(d, flows, time.Now())
	}
	s.answer(w, shown)
}

// drain shows one drain at a time.
func (v view) drain(d store.Drain, flows dataplane.FlowCounts, now time.Time) Drain {
	shown := Drain{DrainTarget: DrainTarget{Service: d.Service, Backend: d.Backend}, Since: d.Since}
	if d.Target == (store.Target{}) {
		shown.Desired = true
	}
	for _, e := range v.desired.Services {
		svc := e.Configured
		if d.Service != "" && d.Service != svc.Name {
			continue
		}
		for _, b := range svc.Backends {
			if d.Backend.IsValid() && d.Backend != b.ID() {
				continue
			}
			shown.Flows += flows[svc.VIP][b.ID()]
			shown.PacketsPerSecond += v.rates.backend(svc.VIP, b.ID()).PacketsPerSecond
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
