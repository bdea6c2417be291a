// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// handoffs are services that other nodes serve from now on. They stay in the
// store, and so in the data plane, until routers send their traffic elsewhere:
// the route goes before the data plane's entry does. The intake's lock guards
// them.
type handoffs struct {
	// leaving has a copy of each service, which distinguishes its hand-off from another
	// one of the same VIP.
	leaving map[lb.VIP]*lb.Service
	waiting sync.WaitGroup
}

// services are those that leave.
func (h *handoffs) services() (all []lb.Service) {
	for _, one := range h.leaving {
		all = append(all, *one)
	}
	return all
}

// begin records the services that leave.
func (in *intake) begin(vips []lb.VIP) (leaving map[lb.VIP]*lb.Service) {
	snapshot := in.store.Snapshot()
	leaving = map[lb.VIP]*lb.Service{}
	for _, vip := range vips {
		if e, found := snapshot.Find(vip); found {
			leaving[vip] = new(*e.Configured)
		}
	}
	if in.handoffs.leaving == nil {
		in.handoffs.leaving = map[lb.VIP]*lb.Service{}
	}
	maps.Copy(in.handoffs.leaving, leaving)
	return leaving
}

// cancel ends the hand-offs of services that come back. It returns the VIPs of
// those that leave under the name of a changed service with another VIP: they
// have to be removed at once.
func (in *intake) cancel(changed []lb.Service) (obstacles []lb.VIP) {
	if len(in.handoffs.leaving) == 0 {
		return nil
	}
	end := func(vip lb.VIP) {
		name := in.handoffs.leaving[vip].Name
		delete(in.handoffs.leaving, vip)
		if in.announcer != nil {
			in.announcer.CancelDrain(name)
		}
	}
	for i := range changed {
		if in.handoffs.leaving[changed[i].VIP] != nil {
			end(changed[i].VIP)
		}
		for vip, one := range in.handoffs.leaving {
			if one.Name == changed[i].Name {
				end(vip)
				obstacles = append(obstacles, vip)
			}
		}
	}
	return obstacles
}

// handOff removes services once their traffic has moved away, but for those that
// came back meanwhile. If ctx ends before, they are left to the next agent.
func (in *intake) handOff(ctx context.Context, leaving map[lb.VIP]*lb.Service) {
	if len(leaving) == 0 {
		return
	}
	in.log.Info("handing services off to other nodes", slog.Int("services", len(leaving)))
	await := in.startDrain(leaving)
	in.handoffs.waiting.Go(func() {
		done, err := await(ctx)
		if relayed(leaving) {
			pause(ctx, relayLinger)
		}
		if ctx.Err() != nil {
			return
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		var removed []lb.VIP
		for vip, one := range leaving {
			if in.handoffs.leaving[vip] == one {
				delete(in.handoffs.leaving, vip)
				removed = append(removed, vip)
			}
		}
		if err != nil && len(removed) > 0 {
			in.log.Warn("routes not withdrawn", slog.Any("error", err))
		}
		if err := in.update(nil, removed); err != nil {
			in.log.Error("services not removed", slog.Any("error", err))
		}
		done()
	})
}

// relayLinger is how long a node keeps a service that other nodes have relayed to its backends,
// after the last backend was removed: the other nodes receive that change at about the same time,
// and the kernel would reset connections that they send here until then.
const relayLinger = 5 * time.Second

// relayed reports whether this node has had one of the services for other nodes.
func relayed(leaving map[lb.VIP]*lb.Service) bool {
	for _, one := range leaving {
		if one.Unannounced {
			return true
		}
	}
	return false
}

// startDrain begins to move the services' traffic away, so that cancel can end that from now on.
// await waits until routers send the traffic elsewhere; its error says that they may still send it
// here. The caller calls done when the services have been removed.
func (in *intake) startDrain(leaving map[lb.VIP]*lb.Service) (await func(context.Context) (done func(), err error)) {
	nothing := func() {}
	if in.announcer == nil {
		return func(context.Context) (func(), error) { return nothing, nil }
	}
	var names []string
	for _, one := range leaving {
		names = append(names, one.Name)
	}
	drained := in.announcer.StartDrain(names...)
	return func(ctx context.Context) (done func(), err error) {
		if done, err = drained(ctx); err != nil {
			return nothing, err
		}
		return done, nil
	}
}
