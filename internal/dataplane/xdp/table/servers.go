// SPDX-License-Identifier: Apache-2.0

package table

import (
	"errors"
	"fmt"

	"fairlead.io/fairlead/internal/lb"
)

// replaceServers makes server IDs of a service's QUIC connections name the backends of these flow
// records, in the place of others.
func (t *Tables) replaceServers(number uint32, before, next map[lb.ServerID]uint32) error {
	var errs []error
	for id := range before {
		if _, stays := next[id]; !stays {
			errs = append(errs, serverError(id, Delete(t.Maps.Servers, serverKey(number, id))))
		}
	}
	for id, record := range next {
		if known, ok := before[id]; !ok || known != record {
			errs = append(errs, serverError(id, t.Maps.Servers.Put(serverKey(number, id), BalancerServer{Service: number, Backend: record})))
		}
	}
	return errors.Join(errs...)
}

func serverError(id lb.ServerID, err error) error {
	if err != nil {
		return fmt.Errorf("server id %s: table servers: %w", id, err)
	}
	return nil
}

func serverKey(number uint32, id lb.ServerID) BalancerServerKey {
	key := BalancerServerKey{Service: number, Length: uint8(len(id))}
	copy(key.Id[:], id)
	return key
}

// adoptServers reads the server IDs that an earlier agent left, by service.
func (t *Tables) adoptServers() error {
	t.servers = make(map[uint32]map[lb.ServerID]uint32)
	var key BalancerServerKey
	var server BalancerServer
	it := t.Maps.Servers.Iterate()
	for it.Next(&key, &server) {
		if t.servers[key.Service] == nil {
			t.servers[key.Service] = make(map[lb.ServerID]uint32)
		}
		t.servers[key.Service][lb.ServerID(key.Id[:key.Length])] = server.Backend
	}
	return it.Err()
}

// claimServers returns the adopted server IDs of a service, with their records.
func (t *Tables) claimServers(number uint32) map[lb.ServerID]uint32 {
	claimed := t.servers[number]
	delete(t.servers, number)
	return claimed
}

// disownServers deletes the adopted server IDs that no service has claimed: an
// agent was stopped before it used them, or before it deleted them.
func (t *Tables) disownServers() error {
	var errs []error
	for number, ids := range t.servers {
		errs = append(errs, t.replaceServers(number, ids, nil))
	}
	t.servers = nil
	return errors.Join(errs...)
}
