// SPDX-License-Identifier: Apache-2.0

package choose

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// Optional interfaces that a Plane implements.
var (
	_ dataplane.DataPlane       = (*Plane)(nil)
	_ dataplane.Attacher        = (*Plane)(nil)
	_ dataplane.Discarder       = (*Plane)(nil)
	_ dataplane.Tracer          = (*Plane)(nil)
	_ dataplane.FlowLister      = (*Plane)(nil)
	_ dataplane.RefusalReporter = (*Plane)(nil)
	_ health.Paths              = (*Plane)(nil)
)

// Stats adds up the counters of all data planes. A packet that one passes to the next is in an
// exit of both.
func (p *Plane) Stats(ctx context.Context) (dataplane.Stats, error) {
	var total dataplane.Stats
	for i, plane := range p.ordered() {
		stats, err := plane.Stats(ctx)
		if err != nil {
			return dataplane.Stats{}, err
		}
		if i == 0 {
			total = stats // not copied, as most nodes have no other data plane
			continue
		}
		for exit, packets := range stats.Exits {
			total.Exits[exit] += packets
		}
		for vip, s := range stats.Services {
			if before, has := total.Services[vip]; has { // it is moving
				s = sum(before, s)
			}
			total.Services[vip] = s
		}
	}
	return total, ctx.Err()
}

// sum adds counters of a service on another data plane: of backends that s doesn't have only
// to the total.
func sum(s, other dataplane.ServiceStats) dataplane.ServiceStats {
	s.Traffic, s.Tracking = s.Traffic.Add(other.Traffic), s.Tracking.Add(other.Tracking)
	s.Shares = slices.Clone(s.Shares)
	for i, b := range s.Backends {
		share, _ := other.Backend(b.ID())
		s.Shares[i] = s.Shares[i].Add(share)
	}
	return s
}

// ordered are the open data planes in the order of preference.
func (p *Plane) ordered() (planes []dataplane.DataPlane) {
	all := p.all()
	for _, i := range slices.Sorted(maps.Keys(all)) {
		planes = append(planes, all[i])
	}
	return planes
}

// Kinds returns the kinds of the open data planes, in the order of preference. missing is
// the error of others that couldn't be opened at the start.
func (p *Plane) Kinds() (open []string, missing error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failed []error
	for _, o := range p.options {
		failed = append(failed, o.failed)
		if o.plane != nil {
			open = append(open, o.Limits.Kind)
		}
	}
	return open, errors.Join(failed...)
}

// first returns the first open data plane that is a T.
func first[T any](p *Plane) (is T, found bool) {
	for _, plane := range p.ordered() {
		if is, found = plane.(T); found {
			break
		}
	}
	return is, found
}

// Prepare implements dataplane.Attacher.
func (p *Plane) Prepare(services []*lb.Service) {
	for i, plane := range p.all() {
		a, attaches := plane.(dataplane.Attacher)
		if !attaches {
			continue
		}
		var own []*lb.Service
		for _, svc := range services {
			if at, _, err := p.choice(svc); err == nil && at == i {
				own = append(own, svc)
			}
		}
		a.Prepare(own)
	}
}

// Attach implements dataplane.Attacher.
func (p *Plane) Attach(ctx context.Context) error {
	if a, found := first[dataplane.Attacher](p); found {
		return a.Attach(ctx)
	}
	return nil
}

// KeepAttached implements dataplane.Attacher.
func (p *Plane) KeepAttached(ctx context.Context, report func(missing error)) {
	if a, found := first[dataplane.Attacher](p); found {
		a.KeepAttached(ctx, report)
	}
}

// Discard implements dataplane.Discarder. No data plane discards packets for addresses of this
// node, as the VIPs of services on another one are.
func (p *Plane) Discard(prefixes []netip.Prefix) error {
	if d, found := first[dataplane.Discarder](p); found {
		return d.Discard(prefixes)
	}
	if len(prefixes) > 0 {
		return errors.New("no data plane of this node can discard packets")
	}
	return nil
}

// Trace implements dataplane.Tracer with the first data plane's trace.
func (p *Plane) Trace(ctx context.Context, packet dataplane.Packet) (dataplane.Trace, error) {
	if t, found := first[dataplane.Tracer](p); found {
		return t.Trace(ctx, packet)
	}
	return dataplane.Trace{}, errors.New("no data plane of this node can trace packets")
}

// Flows implements dataplane.FlowLister.
func (p *Plane) Flows(ctx context.Context, query dataplane.FlowQuery) (dataplane.Flows, error) {
	var total dataplane.Flows
	for _, plane := range p.ordered() {
		lister, lists := plane.(dataplane.FlowLister)
		if !lists {
			continue
		}
		flows, err := lister.Flows(ctx, query)
		if err != nil {
			return dataplane.Flows{}, err
		}
		total.Flows = append(total.Flows, flows.Flows...)
		total.Matching += flows.Matching
		total.Records += flows.Records
		total.Capacity += flows.Capacity
	}
	slices.SortStableFunc(total.Flows, func(a, b dataplane.Flow) int { return cmp.Compare(a.Age, b.Age) })
	total.Flows = total.Flows[:min(len(total.Flows), query.Limit)]
	return total, nil
}

// CountFlows implements dataplane.FlowLister.
func (p *Plane) CountFlows(ctx context.Context) (dataplane.FlowCounts, error) {
	total := dataplane.FlowCounts{}
	for _, plane := range p.ordered() {
		lister, lists := plane.(dataplane.FlowLister)
		if !lists {
			continue
		}
		counts, err := lister.CountFlows(ctx)
		if err != nil {
			return nil, err
		}
		maps.Copy(total, counts)
	}
	return total, nil
}

// Refused implements dataplane.RefusalReporter.
func (p *Plane) Refused() <-chan dataplane.Refusal {
	if r, found := first[dataplane.RefusalReporter](p); found {
		return r.Refused()
	}
	return nil
}

// Open implements health.Paths: probes take the path of the data plane that the service is
// given to.
func (p *Plane) Open(svc *lb.Service, backend lb.Backend, port uint16) (health.Path, func(), error) {
	var paths health.Paths = health.DirectPaths{}
	if at, _, err := p.choice(svc); err == nil {
		if own, has := p.opened(at).(health.Paths); has {
			paths = own
		}
	}
	return paths.Open(svc, backend, port)
}
