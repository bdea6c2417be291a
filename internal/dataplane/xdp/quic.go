// SPDX-License-Identifier: Apache-2.0

package xdp

import (
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

// option finds the slots of the server IDs. A backend that has left keeps its ID
// with its slot, unless another one has the ID now.
func (q *quic) option(o *table.Options, slots []slot, before *table.Options) {
	if q.config == nil {
		return
	}
	o.Quic, o.Servers = q.form, make(map[lb.ServerID]uint32, len(q.ids))
	numbers := slotNumbers(slots)
	present := make(map[uint16]bool, len(q.ids))
	for backend := range q.ids {
		present[numbers[backend]] = true
	}
	for id, record := range before.Servers {
		if named(slots, record) != nil && !present[uint16(record)] && len(id) == q.config.ServerIDLength {
			o.Servers[id] = record
		}
	}
	for backend, id := range q.ids {
		if n := numbers[backend]; id != "" {
			o.Servers[id] = slots[n].record(n)
		}
	}
}
