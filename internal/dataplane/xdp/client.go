// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// clients is the affinity of clients: all flows of a client go to one backend.
type clients struct {
	// hashed is set if the client's port is not part of the ring's hash.
	hashed bool
	// idle is how long a client may begin no flow and still be remembered; 0 if
	// clients aren't.
	idle time.Duration
}

// clientIdle is how long clients of the service are remembered.
func clientIdle(svc *lb.Service) time.Duration {
	if svc.Affinity != lb.AffinityClient {
		return 0
	}
	return svc.AffinityTimeout
}

func (c *clients) describe(svc *lb.Service) {
	c.hashed, c.idle = svc.Affinity == lb.AffinityClient, clientIdle(svc)
}

func (c *clients) needs() program.Features { return when(c.idle != 0, program.FeatureClients) }

func (c *clients) flags() table.BalancerViewFlag {
	return when(c.hashed, table.BalancerViewFlagVIEW_AFFINITY_CLIENT) |
		when(c.idle > 0, table.BalancerViewFlagVIEW_REMEMBER_CLIENTS)
}

func (c *clients) option(o *table.Options, _ []slot, _ *table.Options) { o.ClientIdle = uint64(c.idle) }

// remembers reports whether packets look for their clients' records.
func (v *version) remembers() bool {
	return v.has(table.BalancerViewFlagVIEW_REMEMBER_CLIENTS)
}

// keepsClient reports whether a client's record is still of use; it isn't without
// a service.
func (o *owner) keepsClient(c *table.BalancerClient, now uint64) bool {
	age := time.Duration(int64(now - c.Seen))
	return o != nil && o.now.remembers() && age <= time.Duration(o.now.options.ClientIdle)+idleSlack && named(o.now.slots, c.Backend) != nil
}

// clientSweepInterval is how often records of clients that aren't used are looked for.
const clientSweepInterval = 5 * time.Second

// sweepClients deletes the records of clients that are not used any more: they
// have expired or their backend has left, and generations of slots are reused.
func (w *sweeper) sweepClients() error {
	if !w.clientsLeft.Swap(false) {
		return nil
	}
	owners, err := w.catalog.owners(context.Background())
	kept := 0
	if err == nil {
		kept, err = w.forgetClients(owners)
	}
	left := err != nil || kept > 0
	for _, o := range owners {
		left = left || o.now.remembers()
	}
	if left {
		w.clientsLeft.Store(true)
	}
	return err
}

// forgetClients deletes the records that none of the owners keeps and that no
// packet has written since they were read, and counts the others. Services may have
// changed since the owners were read, so they are read again before records are deleted.
func (w *sweeper) forgetClients(owners map[uint32]*owner) (kept int, err error) {
	now, err := table.ClientClock()
	if err != nil {
		return 0, err
	}
	over := map[uint64]table.BalancerClient{}
	err = table.EachRecord(w.tables.Maps.Clients, func(key uint64, c *table.BalancerClient) {
		if owners[c.Service].keepsClient(c, now) {
			kept++
		} else {
			over[key] = *c
		}
	})
	if err == nil {
		owners, err = w.catalog.owners(context.Background())
	}
	if err != nil {
		return kept, fmt.Errorf("clients: %w", err)
	}
	for key, read := range over {
		if owners[read.Service].keepsClient(&read, now) {
			kept++
			continue
		}
		var c table.BalancerClient
		lost := w.tables.Maps.Clients.Lookup(key, &c)
		if errors.Is(lost, ebpf.ErrKeyNotExist) || lost == nil && c != read {
			continue
		}
		if lost == nil {
			_, lost = table.DeleteRecords(w.tables.Maps.Clients, []uint64{key})
		}
		err = errors.Join(err, lost)
	}
	if err != nil {
		return kept, fmt.Errorf("clients: %w", err)
	}
	return kept, nil
}
