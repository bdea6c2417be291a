// SPDX-License-Identifier: Apache-2.0

// Package table is the memory that the XDP data plane shares with its programs:
// which bytes lie where, and when they may be written again.
//
// Package xdp opens the tables and fills them; package program loads programs on
// them. The structures are generated from the C types, so both sides have the
// same layout.
package table

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

//go:generate go tool bpf2go -target bpfel -type view -type view_flag -type backend_flag -type peer -type address_flag -type rate -type vip_number -type vip_key -type segment_type -type forward -type phase -type traffic -type service_detail -type new_flows_chunk -type trace -type trace_step -type xdp_md -type limit -type limit_time -type peer_lookup -type peer_lookup_limit -type quic -type flow_open -type nat_state -type nat_flag -type nat_seconds -type nat_refusal -type ring_few -type place_window -type place_key Balancer ../../../../bpf/balancer.bpf.c

// ringChunk is the number of ring entries in one element of the ring table, of services
// with many slots.
const ringChunk = uint32(unsafe.Sizeof(BalancerRingChunk{}) / 2)

// Tables are the maps that programs read. The arrays are memory-mapped: writing
// them takes no system call.
type Tables struct {
	Maps BalancerMaps
	// ByName are all maps by their names.
	ByName   map[string]*ebpf.Map
	Capacity Capacity
	spec     *ebpf.CollectionSpec
	pins     string   // the folder in which tables are pinned; "" without one
	lock     *os.File // of the pin directory; nil without one
	// Sessions are the settled NAT sessions, Pending those whose client hasn't proved
	// its address.
	Sessions, Pending *Sessions
	// secrets are this node's random numbers (bpf/core/config.h).
	secrets BalancerSecrets

	services       memory
	rings          memory
	backends       memory
	details        memory
	egress         memory
	remotes        memory
	VIPs           *VIPs
	before         memory // new_flows_before
	serviceDetails memory // service_details
	clientIdle     memory

	Grace    *Grace
	endGrace func()
	// Parts of the tables in use: service numbers, chunks of the ring table,
	// elements of the backend table, and indexes of the backends' counters.
	Numbers        *Arena
	RingChunks     *Arena
	BackendEntries *BackendArena
	Counters       *Arena
	Sources        *SourceLists
	// servers are the adopted server IDs that no service has claimed yet.
	servers map[uint32]map[lb.ServerID]uint32
	// generation of the backend that was last given a slot.
	generation uint16
}

// memory is a table that is mapped into this process.
type memory interface {
	io.ReaderAt
	io.WriterAt
}

// Open creates the tables, or adopts those that are pinned in the folder
// pins, whose parent is locked. Without a folder they end with the process.
// Synchronize returns after a grace period; nil is the kernel's.
func Open(pins string, capacity Capacity, synchronize func() error) (_ *Tables, err error) {
	t := &Tables{Capacity: capacity, pins: pins}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	compiled, err := LoadBalancer()
	if err != nil {
		return nil, err
	}
	capacity.set(compiled)
	grown, err := sessionsGrown(pins)
	if err != nil {
		return nil, err
	}
	if !grown {
		setSessions(compiled, fewSessions)
	}
	spec := compiled.Copy()
	spec.Programs, spec.Variables = nil, nil
	for name, m := range spec.Maps {
		switch {
		case strings.HasPrefix(name, "."):
			delete(spec.Maps, name) // read-only data belongs to a program
		case name == BalancerMapTraces: // holds no state
		case pins != "":
			m.Pinning = ebpf.PinByName
		}
	}
	if pins != "" {
		if err := os.MkdirAll(pins, 0o700); err != nil {
			return nil, fmt.Errorf("pin directory: %w", err)
		}
		if t.lock, err = lockPins(filepath.Dir(pins)); err != nil {
			return nil, err
		}
		if err := t.Capacity.grow(pins, spec); err != nil {
			return nil, err
		}
		err := errors.Join(
			resize[BalancerFlow](pins, spec.Maps[BalancerMapFlows]),
			resize[BalancerFlow](pins, spec.Maps[BalancerMapFlowsPending]),
			resizeSessions(pins, spec.Maps[BalancerMapNatSessions]),
			resizeSessions(pins, spec.Maps[BalancerMapNatPending]),
		)
		if err != nil {
			return nil, err
		}
	}
	for name, m := range spec.Maps {
		spec.Maps[name] = kernelSpec(m)
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: pins}})
	if err != nil {
		return nil, openError(pins, err)
	}
	t.ByName, t.spec = maps.Clone(collection.Maps), compiled
	err = errors.Join(collection.Assign(&t.Maps), t.setSecrets(), t.mapMemory())
	if err == nil {
		t.Sessions, t.Pending = &Sessions{secrets: t.secrets.PlaceSecrets}, &Sessions{secrets: t.secrets.PlaceSecrets}
		err = errors.Join(t.Sessions.open(t.Maps.NatSessions), t.Pending.open(t.Maps.NatPending))
	}
	if err == nil {
		err = t.openGrace(synchronize)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// lockPins locks an instance's pin directory until the file is closed: the tables have one
// writer. Agents with different control sockets may be given one directory.
func lockPins(dir string) (*os.File, error) {
	lock, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("pin directory: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New("another agent has it")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pin directory %s: %w", dir, err), lock.Close())
	}
	return lock, nil
}

// setSecrets makes the tables' secrets, unless an earlier agent has.
func (t *Tables) setSecrets() error {
	var secrets BalancerSecrets
	err := t.Maps.Secrets.Lookup(uint32(0), &secrets)
	if err == nil && secrets == (BalancerSecrets{}) {
		err = binary.Read(rand.Reader, binary.NativeEndian, &secrets)
		if err == nil {
			err = t.Maps.Secrets.Put(uint32(0), secrets)
		}
	}
	if err != nil {
		return fmt.Errorf("table secrets: %w", err)
	}
	t.secrets = secrets
	return errors.Join(
		t.spec.Variables[BalancerVarKeySeed].Set(secrets.KeySeed),
		t.spec.Variables[BalancerVarKeySecrets].Set(secrets.KeySecrets),
		t.spec.Variables[BalancerVarVipSecrets].Set(secrets.VipSecrets),
		t.spec.Variables[BalancerVarPlaceSecretLow].Set(secrets.PlaceSecrets[0]),
		t.spec.Variables[BalancerVarPlaceSecretHigh].Set(secrets.PlaceSecrets[1]))
}

// Spec is the balancer's program as compiled, with this node's secrets. The caller may
// change it.
func (t *Tables) Spec() *ebpf.CollectionSpec { return t.spec.Copy() }

// openGrace makes everything free.
func (t *Tables) openGrace(synchronize func() error) (err error) {
	t.endGrace = func() {}
	if synchronize == nil {
		if synchronize, t.endGrace, err = synchronizer(); err != nil {
			return err
		}
	}
	g := newGrace(synchronize)
	t.Grace = g
	t.Numbers = newArena("services", "dataplane.services", uint32(t.Capacity.Services)+1, g)
	t.RingChunks = newArena("rings", "dataplane.backends", uint32(t.Capacity.RingEntries)/ringChunk, g)
	t.BackendEntries = newBackendArena(t, g)
	t.Counters = newArena("backend_stats", "dataplane.backends", t.Maps.BackendStats.MaxEntries()*trafficChunk, g)
	t.Sources = newSourceLists(t.Maps.Sources, t.Capacity, g)
	return t.Numbers.Reserve(Extent{vipUnused, 1})
}

// openError adds a remedy for the user to an error of the kernel.
func openError(pins string, err error) error {
	switch {
	case errors.Is(err, ebpf.ErrMapIncompatible):
		return fmt.Errorf("tables in %s were made by another version of fairlead: stop its agent and run `fairlead agent --remove`: %w", pins, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("loading the balancer program needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: %w", err)
	}
	return fmt.Errorf("balancer tables: %w", err)
}

// mapMemory maps the arrays into this process.
func (t *Tables) mapMemory() error {
	var errs [10]error
	t.services, errs[0] = t.Maps.Services.Memory()
	t.rings, errs[1] = t.Maps.Rings.Memory()
	t.backends, errs[2] = t.Maps.Backends.Memory()
	t.details, errs[3] = t.Maps.BackendDetails.Memory()
	t.VIPs, errs[4] = newVIPs(t.Maps.Vips, t.secrets)
	t.before, errs[5] = t.Maps.NewFlowsBefore.Memory()
	t.serviceDetails, errs[6] = t.Maps.ServiceDetails.Memory()
	t.clientIdle, errs[7] = t.Maps.ClientIdle.Memory()
	t.egress, errs[8] = t.Maps.Egress.Memory()
	t.remotes, errs[9] = t.Maps.Remotes.Memory()
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("tables: %w", err)
	}
	return nil
}

// Close closes the process's descriptors; pinned tables stay.
func (t *Tables) Close() error {
	if t.Grace != nil {
		t.Grace.Close()
		t.endGrace()
	}
	var errs []error
	for _, s := range []*Sessions{t.Sessions, t.Pending} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	for _, m := range t.ByName {
		errs = append(errs, m.Close())
	}
	if t.lock != nil {
		errs = append(errs, t.lock.Close())
	}
	return errors.Join(errs...)
}

// Adopt reads an earlier agent's lists of sources and server IDs, and Disown
// removes lists that have not been claimed.
func (t *Tables) Adopt() error {
	if err := t.Sources.adopt(); err != nil {
		return fmt.Errorf("table sources: %w", err)
	}
	if err := t.adoptServers(); err != nil {
		return fmt.Errorf("table servers: %w", err)
	}
	return nil
}

// Disown is described with Adopt.
func (t *Tables) Disown() error {
	t.Sources.disown()
	return t.disownServers()
}

// Few reports whether ring entries of a service with that many slots are bytes.
func Few(slots int) bool { return slots <= int(BalancerRingFewRING_FEW_SLOTS) }

// ReadRing returns size entries of the ring at the chunk base, of a service with that
// many slots.
func (t *Tables) ReadRing(base, size uint32, slots int) ([]uint16, error) {
	buf := make([]byte, 2*size)
	if Few(slots) {
		buf = buf[:size]
	}
	if _, err := t.rings.ReadAt(buf, int64(base)*int64(unsafe.Sizeof(BalancerRingChunk{}))); err != nil {
		return nil, err
	}
	ring := make([]uint16, size)
	for i := range ring {
		switch {
		case !Few(slots):
			ring[i] = binary.NativeEndian.Uint16(buf[2*i:])
		case buf[i]&0x7f == 0x7f: // no slot
			ring[i] = uint16(buf[i])<<8 | 0xff
		default:
			ring[i] = uint16(buf[i]&0x80)<<8 | uint16(buf[i]&0x7f)
		}
	}
	return ring, nil
}

// Chunks is the number of elements of the ring table that size entries take, of a service
// with that many slots.
func Chunks(size uint32, slots int) uint32 {
	if Few(slots) {
		size = (size + 1) / 2
	}
	return (size + ringChunk - 1) / ringChunk
}

// Generation is the one that a slot got last. Generations distinguish a backend that gets a
// slot from those that had it before.
func (t *Tables) Generation() uint16 { return t.generation }
