// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// clientIdle is how long a client of the service may begin no flow and still be
// remembered; 0 if clients aren't.
func clientIdle(svc *lb.Service) time.Duration {
	if svc.Affinity != lb.AffinityClient {
		return 0
	}
	return svc.AffinityTimeout
}

// writeClientIdle stores it where the program reads it.
func (t *tables) writeClientIdle(number uint32, idle time.Duration) error {
	return write(t.clientIdle, uintptr(number)*unsafe.Sizeof(uint64(0)), uint64(idle))
}

// remembers reports whether packets look for their clients' records.
func (v *version) remembers() bool {
	return v.flags&uint16(balancerViewFlagVIEW_REMEMBER_CLIENTS) != 0
}

// clientClock is the present time as records of clients have it.
func clientClock() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0, fmt.Errorf("monotonic clock: %w", err)
	}
	return uint64(now.Nano()), nil
}

// clientOwners are the versions of the services that remember clients, by their
// numbers; p.mu is held.
func (p *Plane) clientOwners() map[uint32]*version {
	owners := make(map[uint32]*version)
	for _, s := range p.services {
		if s.now.remembers() {
			owners[s.number.base] = s.now
		}
	}
	return owners
}

// keepsClient reports whether a client's record is still of use; it isn't without
// a service.
func (v *version) keepsClient(c *balancerClient, now uint64) bool {
	age := time.Duration(int64(now - c.Seen))
	return v != nil && age <= v.clientIdle+idleSlack && namesSlot(v.slots, c.Backend)
}

// sweepClients deletes the records of clients that nobody needs: packets don't go
// by them any more, and a slot's generation, which tells its backends apart, comes
// again one day.
func (p *Plane) sweepClients() error {
	p.mu.Lock()
	owners, left := p.clientOwners(), p.clientsLeft
	p.mu.Unlock()
	if len(owners) == 0 && !left {
		return nil
	}
	kept, err := p.forgetClients(owners)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clientsLeft = err != nil || kept > 0 || len(p.clientOwners()) > 0
	return err
}

// forgetClients deletes the records that none of the owners keeps and that no
// packet has written since they were read, and counts the others.
func (p *Plane) forgetClients(owners map[uint32]*version) (kept int, err error) {
	now, err := clientClock()
	if err != nil {
		return 0, err
	}
	over := map[uint64]balancerClient{}
	err = eachRecord(p.kernel.maps.Clients, func(key uint64, c *balancerClient) {
		if owners[c.Service].keepsClient(c, now) {
			kept++
		} else {
			over[key] = *c
		}
	})
	for key, read := range over {
		var c balancerClient
		lost := p.kernel.maps.Clients.Lookup(key, &c)
		if errors.Is(lost, ebpf.ErrKeyNotExist) || lost == nil && c != read {
			continue
		}
		if lost == nil {
			_, lost = deleteRecords(p.kernel.maps.Clients, []uint64{key})
		}
		err = errors.Join(err, lost)
	}
	if err != nil {
		return kept, fmt.Errorf("clients: %w", err)
	}
	return kept, nil
}

// adoptClients deletes the records of clients whose backends have left: their
// generations are given again by this agent, which can't know them.
func (p *Plane) adoptClients() error {
	kept, err := p.forgetClients(p.clientOwners())
	p.clientsLeft = kept > 0
	return err
}
