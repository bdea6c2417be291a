// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/spec"
)

// addresses has the addresses of all LoadBalancers of a store without a controller. They follow
// from the objects' statuses.
type addresses struct {
	*alloc.Networks
	policy *policy
	// retained are the released addresses of pools that only their former projects get.
	retained map[netip.Addr]retention
	// hosts are the addresses of nodes, which no load balancer gets.
	hosts []netip.Addr
}

// retention is the release of an address by a project.
type retention struct {
	Project  string
	Released time.Time
}

// pooled returns the address of a LoadBalancer, if it is of a pool.
func (a *addresses) pooled(owner alloc.Owner) (address netip.Addr) {
	for _, held := range a.Untagged.Of(owner) {
		address = held.Address
	}
	return address
}

// retain retains a released address for as long as its pool does.
func (a *addresses) retain(address netip.Addr, r retention) {
	if slices.Contains(a.hosts, address) {
		a.reserveHost(address)
		return
	}
	reserved := alloc.Reservation{
		For: alloc.Owner{Namespace: r.Project}, Namespace: true,
		Err: &alloc.Error{Reason: alloc.Retained, Text: fmt.Sprintf("address %s: released a short time ago, and retained for its former project", address)},
	}
	if !a.Untagged.Reserve(address, reserved) {
		return
	}
	a.retained[address] = r
	oldest, n := address, 0
	for other, o := range a.retained {
		if o.Project != r.Project {
			continue
		}
		if n++; o.Released.Before(a.retained[oldest].Released) {
			oldest = other
		}
	}
	if n > spec.MaxRetained {
		a.unretain(oldest)
	}
}

func (a *addresses) unretain(address netip.Addr) {
	a.Untagged.Unreserve(address)
	delete(a.retained, address)
}

// store writes a retention into a bucket, and removes those that have ended.
func (a *addresses) store(bucket *bolt.Bucket, address netip.Addr, r retention) error {
	var ended [][]byte
	err := bucket.ForEach(func(key, _ []byte) error {
		if known, err := netip.ParseAddr(string(key)); err != nil || a.retained[known].Project == "" {
			ended = append(ended, key)
		}
		return nil
	})
	for _, key := range ended {
		err = errors.Join(err, bucket.Delete(key))
	}
	text, otherErr := json.Marshal(r)
	return errors.Join(err, otherErr, bucket.Put([]byte(address.String()), text))
}

// restore retains an address of the file.
func (a *addresses) restore(key, text []byte) error {
	var r retention
	address, err := netip.ParseAddr(string(key))
	if err = errors.Join(err, json.Unmarshal(text, &r)); err == nil {
		a.retain(address, r)
	}
	return err
}

// expire ends the retentions that are over.
func (a *addresses) expire() {
	for address, r := range a.retained {
		pool := a.Untagged.PoolOf(address)
		at := slices.IndexFunc(a.policy.pools, func(p projectPool) bool { return p.Name == pool })
		_, reserved := a.Untagged.Reserved(address)
		if at < 0 || time.Since(r.Released) >= a.policy.pools[at].retainFor || !reserved {
			a.unretain(address)
		}
	}
}

// setHosts replaces the addresses of nodes. A load balancer that has one keeps it.
func (a *addresses) setHosts(hosts []netip.Addr) {
	for _, address := range a.hosts {
		a.Untagged.Unreserve(address)
	}
	a.hosts = hosts
	for _, address := range hosts {
		a.reserveHost(address)
	}
}

func (a *addresses) reserveHost(address netip.Addr) {
	delete(a.retained, address)
	a.Untagged.Reserve(address, alloc.Reservation{Err: &alloc.Error{Reason: alloc.InUse, Text: fmt.Sprintf("address %s: the address of a balancer node or of its BGP peer", address)}})
}

func newAddresses(p *policy) *addresses {
	a := &addresses{Networks: alloc.NewNetworks(), policy: p, retained: map[netip.Addr]retention{}}
	var pools []alloc.Pool
	for _, pool := range p.pools {
		pools = append(pools, pool.Pool)
	}
	a.Untagged.SetPools(pools)
	return a
}

// release frees the address of a LoadBalancer.
func (a *addresses) release(owner alloc.Owner) {
	a.Untagged.Release(owner)
	for _, space := range a.Tagged {
		space.Release(owner)
	}
	a.Prune()
}

// adopt has a LoadBalancer hold the address in its status, and no other one.
func (a *addresses) adopt(b *v1alpha1.LoadBalancer) {
	request, segment, _ := spec.AddressRequest(b) // the schema rejects invalid ones
	a.release(request.Owner)
	if address, err := netip.ParseAddr(b.Status.Address); err == nil {
		a.In(segment).Adopt([]alloc.Holding{{Owner: request.Owner, Addresses: []netip.Addr{address}, Ports: request.Ports}})
	}
}

// claim returns the address that a LoadBalancer gets; none but that in the status, if it keeps that.
// With an error it is the one in the status, which stays the LoadBalancer's, though it may not be
// served; invalid if there is none.
func (a *addresses) claim(b *v1alpha1.LoadBalancer, keeps bool) (netip.Addr, error) {
	a.expire()
	request, segment, err := spec.AddressRequest(b)
	if err != nil {
		a.release(request.Owner)
		return netip.Addr{}, err
	}
	request.Pools = []string{alloc.AnyAddress}
	if !segment.Tagged() {
		request.Pools = a.policy.poolsOf(b.Namespace)
	} else if !a.policy.members.Allows(segment) {
		request.Pools = nil
	}
	held, err := netip.ParseAddr(b.Status.Address)
	if keeps && err == nil {
		request.Wanted = []netip.Addr{held}
	}
	space := a.In(segment)
	if len(space.Of(request.Owner)) == 0 {
		a.release(request.Owner) // in another network
		space = a.In(segment)
	}
	result, err := space.Claim(request)
	if err != nil {
		a.adopt(b)
		if failed, ok := errors.AsType[*alloc.Error](err); len(request.Pools) == 0 && segment.Tagged() {
			err = fmt.Errorf("%s isn't in the policy's loadBalancers.segments", segment)
		} else if ok && failed.Reason == alloc.Taken {
			err = fmt.Errorf("address %s: another load balancer has it", request.Wanted[0]) // maybe of another project
		}
		return held, err
	}
	return result.Addresses[0].Address, nil
}
