// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
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

// reports writes reports of the node to the server that is followed. Its methods may be called concurrently.
type reports struct {
	node    string
	log     *slog.Logger
	servers *servers
	// services returns the services that the node has.
	services func() []lb.Service
	// again is signalled when a server has sent all objects.
	again chan struct{}

	// writing serializes reports.
	writing sync.Mutex
	// last are the last reports, by name.
	last map[string]any

	mu sync.Mutex
	// peers are the node's BGP peers.
	peers []netip.Addr
}

// Report implements source.Reporter: it writes the report, with the node's addresses, to the server that is
// followed. While there is none the report is kept, and written as soon as a server has sent all objects.
func (r *reports) Report(ctx context.Context, report *v1alpha1.BalancerNodeStatus) error {
	addresses, err := r.addresses()
	if err != nil {
		return err
	}
	own := *report
	own.Addresses = addresses
	return r.set(ctx, "report", &own)
}

// SetPeers sets the addresses of the node's BGP peers, which are reported with the node's.
func (r *reports) SetPeers(peers []netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers = peers
}

// addresses returns the addresses of the node's BGP peers and interfaces, without VIPs, which servers on the same
// machine may have.
func (r *reports) addresses() (all []v1alpha1.IPAddress, err error) {
	found, err := source.OwnAddresses()
	if err != nil {
		return nil, err
	}
	services := r.services()
	r.mu.Lock()
	peers := r.peers
	r.mu.Unlock()
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
func (r *reports) ReportStatistics(ctx context.Context, report *v1alpha1.BalancerNodeStatisticsStatus) error {
	return r.set(ctx, "statistics", new(*report))
}

// set keeps and writes a report.
func (r *reports) set(ctx context.Context, name string, report any) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.last[name] = report
	return r.write(ctx, name)
}

// repeat writes the last reports to each server that has sent all objects, until ctx ends: one
// that was restarted, or is another one, may not have them. It retries, as a node at rest reports no
// newer counters.
func (r *reports) repeat(ctx context.Context) {
	var retry <-chan time.Time
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-r.again:
			failures = 0
		case <-retry:
		}
		retry = nil
		var err error
		r.writing.Lock()
		for _, name := range slices.Sorted(maps.Keys(r.last)) { // the report first
			err = errors.Join(err, r.write(ctx, name))
		}
		r.writing.Unlock()
		if err == nil || ctx.Err() != nil {
			continue
		}
		if failures++; failures == 1 {
			r.log.Warn("reports of this node not written again, retrying", "error", err)
		}
		retry = time.After(repeatDelay.Delay(failures))
	}
}

// write writes the last report of a name, with the lock held, if a server is followed.
func (r *reports) write(ctx context.Context, name string) error {
	server := r.servers.current()
	if server == "" {
		return nil
	}
	body, err := json.Marshal(r.last[name])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	response, err := r.servers.send(ctx, http.MethodPut, server, "/v1/nodes/"+url.PathEscape(r.node)+"/"+name, body)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
