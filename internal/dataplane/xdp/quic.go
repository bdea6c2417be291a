// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"maps"
	"unsafe"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/lb"
)

// servers are the backends that QUIC connection ids of one service can name, as
// records of their slots (slot.record).
type servers map[lb.ServerID]uint32

// quicForm is the form of a service's connection ids as the program reads it.
func quicForm(svc *lb.Service) balancerQuic {
	if svc.QUIC == nil {
		return balancerQuic{}
	}
	return balancerQuic{
		Config:       uint8(svc.QUIC.ConfigID) << 5,
		ServerLength: uint8(svc.QUIC.ServerIDLength),
		NonceLength:  uint8(svc.QUIC.NonceLength),
	}
}

// stageServers finds the slots of the server ids in a plan. A backend that has
// left keeps its id with its slot, unless another one has it now.
func (v *version) stageServers(svc *lb.Service) {
	v.quic = quicForm(svc)
	if svc.QUIC == nil {
		v.servers = nil
		return
	}
	numbers := slotNumbers(v.slots)
	present := make(map[uint16]bool, len(svc.Backends))
	for _, b := range svc.Backends {
		present[numbers[b.ID()]] = true
	}
	next := make(servers, len(svc.Backends))
	for id, record := range v.heldServers() {
		if !present[uint16(record)] && len(id) == svc.QUIC.ServerIDLength {
			next[id] = record
		}
	}
	for _, b := range svc.Backends {
		if n := numbers[b.ID()]; b.ServerID != "" {
			next[b.ServerID] = v.slots[n].record(n)
		}
	}
	v.servers = next
}

// heldServers are the server ids of backends that still have their slots.
func (v *version) heldServers() servers {
	held := make(servers, len(v.servers))
	for id, record := range v.servers {
		n := uint16(record)
		if int(n) < len(v.slots) && v.slots[n].taken() && v.slots[n].record(n) == record {
			held[id] = record
		}
	}
	return held
}

// writeQUIC stores what differs between two versions, before the second one is
// shown; called with both exchanged it takes that back. A packet that misses a
// server id goes by its five-tuple.
func (p *Plane) writeQUIC(number uint32, old, next *version) error {
	errs := []error{p.dropServers(number, old.servers, next.servers)}
	for id, record := range next.servers {
		if known, ok := old.servers[id]; ok && known == record {
			continue
		}
		server := balancerServer{Service: number, Backend: record}
		if err := p.kernel.maps.Servers.Put(serverKey(number, id), server); err != nil {
			errs = append(errs, fmt.Errorf("server id %s: table servers: %w", id, err))
		}
	}
	if next.quic != old.quic {
		at := serviceOffset(number) + unsafe.Offsetof(balancerService{}.Quic)
		errs = append(errs, write(p.kernel.services, at, next.quic))
	}
	return errors.Join(errs...)
}

// dropServers deletes the server ids in gone that are not kept.
func (p *Plane) dropServers(number uint32, gone, kept servers) error {
	var errs []error
	for id := range gone {
		if _, stays := kept[id]; stays {
			continue
		}
		if err := p.kernel.maps.Servers.Delete(serverKey(number, id)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("server id %s: table servers: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// adoptServers reads the server ids that an earlier agent left, by service.
func (p *Plane) adoptServers() (map[uint32]servers, error) {
	found := make(map[uint32]servers)
	var key balancerServerKey
	var server balancerServer
	it := p.kernel.maps.Servers.Iterate()
	for it.Next(&key, &server) {
		if found[key.Service] == nil {
			found[key.Service] = make(servers)
		}
		found[key.Service][lb.ServerID(key.Id[:key.Length])] = server.Backend
	}
	return found, it.Err()
}

// disownServers deletes the server ids that no adopted service uses: an agent
// was stopped before it used them, or before it deleted them.
func (p *Plane) disownServers(found map[uint32]servers) error {
	used := make(map[uint32]servers)
	for _, s := range p.services {
		used[s.number.base] = s.now.servers
	}
	var errs []error
	for number, gone := range found {
		errs = append(errs, p.dropServers(number, gone, used[number]))
	}
	return errors.Join(errs...)
}

func serverKey(number uint32, id lb.ServerID) balancerServerKey {
	key := balancerServerKey{Service: number, Length: uint8(len(id))}
	copy(key.Id[:], id)
	return key
}

// sameQUIC reports whether connection ids mean the same in two versions.
func sameQUIC(a, b *version) bool { return a.quic == b.quic && maps.Equal(a.servers, b.servers) }
