// SPDX-License-Identifier: Apache-2.0

package table

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// grown are the tables whose sizes follow from Capacity.RingEntries, Backends and Services.
// The capacity is read from the last one of each, so an agent that is killed
// while it makes tables larger leaves some that are larger than they need to be.
var grown = []string{
	BalancerMapRings,

	BalancerMapBackendDetails, BalancerMapRemotes, BalancerMapBackendStats, BalancerMapNewFlows, BalancerMapNewFlowsBefore,
	BalancerMapServers, BalancerMapBackends,

	BalancerMapVips, BalancerMapFlowStats, BalancerMapClientIdle, BalancerMapAddresses, BalancerMapServiceDetails,
	BalancerMapLookups, BalancerMapMtuAnswers, BalancerMapServices,
}

// grow replaces pinned tables that are smaller than their specifications. A larger one stays,
// as its last elements may be in use: the specification gets its size, and the capacity
// follows.
func (c *Capacity) grow(pins string, spec *ebpf.CollectionSpec) error {
	for _, name := range grown {
		if err := growTable(pins, spec.Maps[name]); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	c.RingEntries = int(spec.Maps[BalancerMapRings].MaxEntries * ringChunk)
	c.Backends = int(spec.Maps[BalancerMapBackends].MaxEntries)
	c.Services = int(spec.Maps[BalancerMapServices].MaxEntries) - 1
	return nil
}

// growTable gives the table that is pinned by the name of a specification the
// specification's size, or the specification the size of the table: the larger one.
func growTable(pins string, spec *ebpf.MapSpec) error {
	pin := filepath.Join(pins, spec.Name)
	old, err := ebpf.LoadPinnedMap(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer old.Close()
	wanted := spec.MaxEntries
	spec.MaxEntries = elements(spec.Name, old)
	if err := kernelSpec(spec).Compatible(old); err != nil {
		return openError(pins, err)
	}
	if wanted <= spec.MaxEntries {
		return nil
	}
	spec.MaxEntries = wanted
	return replaceTable(pin, kernelSpec(spec), func(fresh *ebpf.Map) error { return copyTable(pins, spec, fresh, old) })
}

// copyTable copies the elements of a table to the same indexes or keys of a larger one, VIPs
// to other places.
func copyTable(pins string, spec *ebpf.MapSpec, to, from *ebpf.Map) error {
	switch {
	case spec.Name == BalancerMapVips:
		return copyVIPs(pins, to, from)
	case spec.Name == BalancerMapBackendStats:
		return copyPerCPU[BalancerTrafficChunk](to, from)
	case spec.Name == BalancerMapNewFlows:
		return copyPerCPU[BalancerNewFlowsChunk](to, from)
	case spec.Name == BalancerMapFlowStats:
		return copyPerCPU[BalancerFlowStats](to, from)
	case spec.Type == ebpf.Hash:
		return copyHash(to, from)
	case spec.Flags&unix.BPF_F_MMAPABLE != 0:
		return copyMemory(to, from)
	default: // of limits on rates
		return nil
	}
}

func copyMemory(to, from *ebpf.Map) error {
	source, err := from.Memory()
	if err != nil {
		return err
	}
	target, err := to.Memory()
	if err != nil {
		return err
	}
	size := int64(from.MaxEntries()) * int64(from.ValueSize())
	_, err = io.Copy(io.NewOffsetWriter(target, 0), io.NewSectionReader(source, 0, size))
	return err
}

func copyPerCPU[T any](to, from *ebpf.Map) error {
	for i := range from.MaxEntries() {
		var values []T // by processor
		if err := from.Lookup(i, &values); err != nil {
			return err
		}
		if err := to.Put(i, values); err != nil {
			return err
		}
	}
	return nil
}

func copyHash(to, from *ebpf.Map) error {
	var key, value []byte
	it := from.Iterate()
	for it.Next(&key, &value) {
		if err := to.Put(key, value); err != nil {
			return err
		}
	}
	return it.Err()
}

// copyVIPs puts VIPs into the places that they have in a table of another size.
func copyVIPs(pins string, to, from *ebpf.Map) error {
	secrets, err := pinnedSecrets(pins)
	if err != nil {
		return err
	}
	source, err := newVIPs(from, secrets)
	if err != nil {
		return err
	}
	target, err := newVIPs(to, secrets)
	if err != nil {
		return err
	}
	return source.Each(target.Put)
}

// GrowSessions gives the tables of NAT sessions the size that the capacity says. They begin
// with a few places, as programs without NAT don't read them, so that a node without services
// that need NAT saves their memory. It is called before a program with NAT is loaded, and not
// together with another call or another load of a program.
func GrowSessions(t *Tables) error {
	sized := t.spec.Copy()
	setSessions(sized, t.Capacity.Sessions)
	for _, one := range []struct {
		now      **ebpf.Map
		sessions *Sessions
		spec     *ebpf.MapSpec
	}{
		{&t.Maps.NatPending, t.Pending, sized.Maps[BalancerMapNatPending]},
		{&t.Maps.NatSessions, t.Sessions, sized.Maps[BalancerMapNatSessions]},
	} {
		if (*one.now).MaxEntries() == one.spec.MaxEntries {
			continue
		}
		fresh, err := newTable(t.pins, one.spec)
		if err == nil {
			err = one.sessions.open(fresh)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("table %s: %w", one.spec.Name, err), fresh.Close())
		}
		before := *one.now
		*one.now, t.ByName[one.spec.Name] = fresh, fresh
		if err := before.Close(); err != nil {
			return err
		}
	}
	return nil
}

// newTable makes an empty table, in the place of one that is pinned in the folder pins if
// there is a folder.
func newTable(pins string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	if pins == "" {
		return ebpf.NewMap(spec)
	}
	pin := filepath.Join(pins, spec.Name)
	if err := replaceTable(pin, spec, func(*ebpf.Map) error { return nil }); err != nil {
		return nil, err
	}
	return ebpf.LoadPinnedMap(pin, nil)
}

// fewSessions is the capacity of the tables of sessions before GrowSessions.
const fewSessions = 1

// sessionsGrown reports whether GrowSessions has been called on the tables in a folder. The
// table of settled sessions is the last one that it makes.
func sessionsGrown(pins string) (bool, error) {
	pinned, err := ebpf.LoadPinnedMap(filepath.Join(pins, BalancerMapNatSessions), nil)
	if pins == "" || errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("table %s: %w", BalancerMapNatSessions, err)
	}
	defer pinned.Close()
	return pinned.MaxEntries() > uint32(sessionPlaces(2*fewSessions)), nil
}
