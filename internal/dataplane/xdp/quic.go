// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"maps"
	"unsafe"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// quic is the form of a service's QUIC connection IDs and the backends that they
// name. A packet with another server ID goes by its five-tuple.
type quic struct {
	config *lb.QUIC
	ids    map[lb.BackendID]lb.ServerID
	form   table.BalancerQuic
	// servers are the backends by their server IDs, as records of their slots
	// (slot.record).
	servers map[lb.ServerID]uint32
}

func (q *quic) describe(svc *lb.Service) {
	if q.config = svc.QUIC; q.config == nil {
		return
	}
	q.form = table.BalancerQuic{
		Config:       uint8(svc.QUIC.ConfigID) << 5,
		ServerLength: uint8(svc.QUIC.ServerIDLength),
		NonceLength:  uint8(svc.QUIC.NonceLength),
	}
	q.ids = make(map[lb.BackendID]lb.ServerID, len(svc.Backends))
	for _, b := range svc.Backends {
		q.ids[b.ID()] = b.ServerID
	}
}

func (q *quic) needs() program.Features { return when(q.config != nil, program.FeatureQUIC) }

func (q *quic) flags() table.BalancerViewFlag {
	return when(q.config != nil, table.BalancerViewFlagVIEW_QUIC)
}

// stage finds the slots of the server IDs. A backend that has left keeps its ID
// with its slot, unless another one has the ID now.
func (q *quic) stage(_ *table.Tables, slots []slot, old property) error {
	if q.config == nil {
		return nil
	}
	q.servers = make(map[lb.ServerID]uint32, len(q.ids))
	numbers := slotNumbers(slots)
	present := make(map[uint16]bool, len(q.ids))
	for backend := range q.ids {
		present[numbers[backend]] = true
	}
	for id, record := range old.(*quic).servers {
		if named(slots, record) != nil && !present[uint16(record)] && len(id) == q.config.ServerIDLength {
			q.servers[id] = record
		}
	}
	for backend, id := range q.ids {
		if n := numbers[backend]; id != "" {
			q.servers[id] = slots[n].record(n)
		}
	}
	return nil
}

// slotsFreed removes the server IDs of backends that have no slot any more.
func (q *quic) slotsFreed(slots []slot) {
	q.servers = maps.Clone(q.servers)
	maps.DeleteFunc(q.servers, func(_ lb.ServerID, record uint32) bool { return named(slots, record) == nil })
}

func (q *quic) same(old property) bool {
	o := old.(*quic)
	return q.form == o.form && maps.Equal(q.servers, o.servers)
}

// write stores the differences from old.
func (q *quic) write(t *table.Tables, number, _ uint32, old property) error {
	before := old.(*quic)
	errs := []error{before.drop(t, number, q.servers)}
	for id, record := range q.servers {
		if known, ok := before.servers[id]; !ok || known != record {
			errs = append(errs, t.PutServer(number, id, record))
		}
	}
	if q.form != before.form {
		errs = append(errs, table.WriteService(t, number, unsafe.Offsetof(table.BalancerService{}.Quic), q.form))
	}
	return errors.Join(errs...)
}

// drop deletes the server IDs that are not kept.
func (q *quic) drop(t *table.Tables, number uint32, kept map[lb.ServerID]uint32) error {
	var errs []error
	for id := range q.servers {
		if _, stays := kept[id]; !stays {
			errs = append(errs, t.DeleteServer(number, id))
		}
	}
	return errors.Join(errs...)
}

func (q *quic) retire(t *table.Tables, number uint32, next property, _ table.Ticket) error {
	if next != nil {
		return nil // write has dropped elements that next doesn't use
	}
	return q.drop(t, number, nil)
}

func (q *quic) adopt(t *table.Tables, number uint32, s *table.BalancerService, slots []slot) error {
	q.form = s.Quic
	found := quic{servers: t.ClaimServers(number)}
	q.servers = found.servers
	q.slotsFreed(slots)
	return found.drop(t, number, q.servers)
}
