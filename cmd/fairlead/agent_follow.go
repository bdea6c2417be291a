// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source/kube"
)

// departures are services that are served elsewhere from now on. They stay in the
// store, and so in the data plane, until routers have been led away from this node
// (DESIGN.md §7): the route goes before the program's entry does.
type departures struct {
	// mu is held while the store is told, so that a service that comes back is not
	// taken away by who waited for its routes. It is taken before the store's lock.
	mu      sync.Mutex
	leaving map[lb.VIP]*departure
	waiting sync.WaitGroup
}

// departure is a service on its way.
type departure struct{ service lb.Service }

// wait returns when nobody waits for routes any more.
func (d *departures) wait() { d.waiting.Wait() }

// stay takes services back, and returns the VIPs of those that would be in the way
// of one: they have its name, but another VIP.
func (d *departures) stay(services []lb.Service) (back []string, obstacles []lb.VIP) {
	if len(d.leaving) == 0 {
		return nil, nil
	}
	for i := range services {
		if one := d.leaving[services[i].VIP]; one != nil {
			back = append(back, one.service.Name)
			delete(d.leaving, services[i].VIP)
		}
		for vip, one := range d.leaving {
			if one.service.Name == services[i].Name {
				back, obstacles = append(back, one.service.Name), append(obstacles, vip)
				delete(d.leaving, vip)
			}
		}
	}
	return back, obstacles
}

// services are those that are on their way.
func (d *departures) services() (all []lb.Service) {
	for _, one := range d.leaving {
		all = append(all, one.service)
	}
	return all
}

// follow takes over what a cluster says. Health is told first: then it can say how
// new backends count until they have been probed.
func (a *agent) follow(ctx context.Context, u kube.Update) error {
	a.departures.mu.Lock()
	defer a.departures.mu.Unlock()
	left := a.depart(u.Left)
	back, obstacles := a.departures.stay(u.Changed)
	if a.announcer != nil {
		for _, name := range back {
			a.announcer.Stay(name)
		}
	}
	var err error
	if u.Whole {
		all := slices.Concat(u.Changed, a.departures.services())
		a.monitor.Set(all)
		_, err = a.store.Set(all, a.monitor.States()...)
	} else {
		err = a.replace(u.Changed, slices.Concat(u.Removed, obstacles))
	}
	a.lead(ctx, left)
	return err
}

// replace changes single services.
func (a *agent) replace(changed []lb.Service, removed []lb.VIP) error {
	if len(changed) == 0 && len(removed) == 0 {
		return nil
	}
	a.monitor.Update(changed, removed)
	_, err := a.store.Update(changed, removed, a.monitor.StatesOf(changed)...)
	return err
}

// depart takes note of services that go.
func (a *agent) depart(vips []lb.VIP) (left map[lb.VIP]*departure) {
	snapshot := a.store.Snapshot()
	left = map[lb.VIP]*departure{}
	for _, vip := range vips {
		if e, found := snapshot.Find(vip); found {
			left[vip] = &departure{service: *e.Configured}
		}
	}
	if a.departures.leaving == nil {
		a.departures.leaving = map[lb.VIP]*departure{}
	}
	maps.Copy(a.departures.leaving, left)
	return left
}

// lead waits until routers have been led elsewhere, and takes the services away
// that have not come back meanwhile. If ctx ends before they are the next agent's.
func (a *agent) lead(ctx context.Context, left map[lb.VIP]*departure) {
	if len(left) == 0 {
		return
	}
	a.log.Info("services are served by other nodes from now on", slog.Int("services", len(left)))
	a.departures.waiting.Go(func() {
		done := func() {}
		if a.announcer != nil {
			var names []string
			for _, one := range left {
				names = append(names, one.service.Name)
			}
			moved, err := a.announcer.Move(ctx, names...)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				a.log.Warn("routes not withdrawn", slog.Any("error", err))
			} else {
				done = moved
			}
		}
		a.departures.mu.Lock()
		defer a.departures.mu.Unlock()
		var gone []lb.VIP
		for vip, one := range left {
			if a.departures.leaving[vip] == one {
				delete(a.departures.leaving, vip)
				gone = append(gone, vip)
			}
		}
		if err := a.replace(nil, gone); err != nil {
			a.log.Error("services not taken away", slog.Any("error", err))
		}
		done()
	})
}
