// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/spec"
)

// reportTimeout bounds one write of a report.
const reportTimeout = 10 * time.Second

// Report implements source.Reporter: it writes the report to the server that is followed.
func (s *Source) Report(ctx context.Context, r *source.Report) error {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	s.report = new(*r)
	return s.writeReport(ctx)
}

// repeatReports writes the last report to each server that has sent all objects, until ctx ends: one
// that was restarted, or is another one, may not have the report.
func (s *Source) repeatReports(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.synced:
		}
		s.reporting.Lock()
		if s.report != nil {
			if err := s.writeReport(ctx); err != nil && ctx.Err() == nil {
				s.Log.Warn("report of this node not written again", "error", err)
			}
		}
		s.reporting.Unlock()
	}
}

// writeReport writes the last report, with its lock held.
func (s *Source) writeReport(ctx context.Context) error {
	s.mu.Lock()
	server := s.followed
	s.mu.Unlock()
	if server == "" {
		return errors.New("API server unreachable")
	}
	body, err := json.Marshal(spec.NodeStatus(s.report, nil))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	response, err := s.send(ctx, http.MethodPut, server, "/v1/nodes/"+url.PathEscape(s.Node)+"/report", body)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
