// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/wait"
)

// reportTimeout bounds one write of a report.
const reportTimeout = 10 * time.Second

// repeatDelay is the delay after reports that could not be written again.
var repeatDelay = wait.Backoff{First: time.Second, Max: time.Minute, Jitter: 0.5}

// reports are the last reports of the node; nil for none.
type reports struct {
	status     *v1alpha1.BalancerNodeStatus
	statistics *v1alpha1.BalancerNodeStatisticsStatus
}

// Report implements source.Reporter: it writes the report, with the node's addresses, to the server that is
// followed. While there is none the report is kept, and written as soon as a server has sent all objects.
func (s *Source) Report(ctx context.Context, r *v1alpha1.BalancerNodeStatus) error {
	addresses, err := s.addresses()
	if err != nil {
		return err
	}
	s.reporting.Lock()
	defer s.reporting.Unlock()
	s.reports.status = new(*r)
	s.reports.status.Addresses = addresses
	return s.writeReport(ctx)
}

// SetPeers sets the addresses of the node's BGP peers, which are reported with the node's.
func (s *Source) SetPeers(peers []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers = peers
}

// addresses returns the addresses of the node's BGP peers and interfaces, without VIPs, which servers on the same
// machine may have.
func (s *Source) addresses() (all []v1alpha1.IPAddress, err error) {
	found, err := source.OwnAddresses()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	services, peers := s.vips.Services(), s.peers
	s.mu.Unlock()
	for _, a := range peers {
		all = append(all, v1alpha1.IPAddress(a.String()))
	}
	for _, a := range found {
		vip := slices.ContainsFunc(services, func(svc lb.Service) bool { return svc.Address == a })
		if a.IsGlobalUnicast() && !vip && len(all) < source.MaxAddresses {
			all = append(all, v1alpha1.IPAddress(a.String()))
		}
	}
	return all, nil
}

// ReportStatistics implements source.Reporter: it is Report of counters.
func (s *Source) ReportStatistics(ctx context.Context, r *v1alpha1.BalancerNodeStatisticsStatus) error {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	s.reports.statistics = new(*r)
	return s.writeStatistics(ctx)
}

// repeatReports writes the last reports to each server that has sent all objects, until ctx ends: one
// that was restarted, or is another one, may not have them. It retries, as a node at rest reports no
// newer counters.
func (s *Source) repeatReports(ctx context.Context) {
	var retry <-chan time.Time
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-s.synced:
			failures = 0
		case <-retry:
		}
		retry = nil
		s.reporting.Lock()
		err := errors.Join(s.writeReport(ctx), s.writeStatistics(ctx))
		s.reporting.Unlock()
		if err == nil || ctx.Err() != nil {
			continue
		}
		if failures++; failures == 1 {
			s.Log.Warn("reports of this node not written again, retrying", "error", err)
		}
		retry = time.After(repeatDelay.Delay(failures))
	}
}

// writeReport writes the last report, if there is one, with its lock held.
func (s *Source) writeReport(ctx context.Context) error {
	if s.reports.status == nil {
		return nil
	}
	return s.write(ctx, "report", s.reports.status)
}

// writeStatistics is writeReport of counters.
func (s *Source) writeStatistics(ctx context.Context) error {
	if s.reports.statistics == nil {
		return nil
	}
	return s.write(ctx, "statistics", s.reports.statistics)
}

// write writes a report of the node, if a server is followed.
func (s *Source) write(ctx context.Context, name string, report any) error {
	s.mu.Lock()
	server := s.followed
	s.mu.Unlock()
	if server == "" {
		return nil
	}
	body, err := json.Marshal(report)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	response, err := s.send(ctx, http.MethodPut, server, "/v1/nodes/"+url.PathEscape(s.Node)+"/"+name, body)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
