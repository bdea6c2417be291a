// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
)

// ringChunk is the number of ring entries in one element of the ring table.
const ringChunk = uint32(len(balancerRingChunk{}.Entry))

// tables are the maps that the program reads. The arrays are memory-mapped:
// writing them takes no system call.
type tables struct {
	maps     balancerMaps
	services *ebpf.Memory
	rings    *ebpf.Memory
	backends *ebpf.Memory
	details  *ebpf.Memory
	vips     *ebpf.Memory
	before   *ebpf.Memory // new_flows_before
	// serviceVIPs is the other way: a service's VIP by its number.
	serviceVIPs *ebpf.Memory
	clientIdle  *ebpf.Memory
}

func newTables(maps balancerMaps) (*tables, error) {
	t := &tables{maps: maps}
	var errs [8]error
	t.services, errs[0] = maps.Services.Memory()
	t.rings, errs[1] = maps.Rings.Memory()
	t.backends, errs[2] = maps.Backends.Memory()
	t.details, errs[3] = maps.BackendDetails.Memory()
	t.vips, errs[4] = maps.Vips.Memory()
	t.before, errs[5] = maps.NewFlowsBefore.Memory()
	t.serviceVIPs, errs[6] = maps.ServiceVips.Memory()
	t.clientIdle, errs[7] = maps.ClientIdle.Memory()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	return t, nil
}

// shared are the structures that the program reads; they have no hidden padding.
type shared interface {
	balancerService | balancerView | balancerVipKey | balancerVipPlace | balancerBackend | balancerBackendDetail | balancerTraffic | balancerQuic | balancerRound | uint32 | uint64
}

// raw is the memory of a shared structure.
func raw[T shared](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// write and read move one structure to or from a place in mapped memory.
func write[T shared](m *ebpf.Memory, offset uintptr, v T) error {
	_, err := m.WriteAt(raw(&v), int64(offset))
	return err
}

func read[T shared](m *ebpf.Memory, index uint32) (v T, err error) {
	_, err = m.ReadAt(raw(&v), int64(index)*int64(unsafe.Sizeof(v)))
	return v, err
}

func serviceOffset(number uint32) uintptr {
	return uintptr(number) * unsafe.Sizeof(balancerService{})
}

func viewOffset(number, view uint32) uintptr {
	return serviceOffset(number) + unsafe.Offsetof(balancerService{}.View) + uintptr(view)*unsafe.Sizeof(balancerView{})
}

func sourcesOffset(number, view uint32) uintptr {
	return serviceOffset(number) + unsafe.Offsetof(balancerService{}.Sources) + uintptr(view)*unsafe.Sizeof(uint32(0))
}

// flip makes a view visible: one aligned store of four bytes, which Go's memmove
// and the processor do at once.
func (t *tables) flip(number, view uint32) error {
	return write(t.services, serviceOffset(number)+unsafe.Offsetof(balancerService{}.Active), view)
}

// writeRing stores a ring from the chunk base on.
func (t *tables) writeRing(base uint32, ring []uint16) error {
	buf := make([]byte, 0, 2*len(ring))
	for _, e := range ring {
		buf = binary.NativeEndian.AppendUint16(buf, e)
	}
	_, err := t.rings.WriteAt(buf, int64(base)*int64(unsafe.Sizeof(balancerRingChunk{})))
	return err
}

// writeSlots stores the slots of a service from base on.
func (t *tables) writeSlots(base uint32, slots []slot) error {
	for i := range slots {
		index := uintptr(base) + uintptr(i)
		b := slots[i].balancerBackend
		b.Index = uint32(index) // of no meaning elsewhere
		if err := write(t.backends, index*unsafe.Sizeof(b), b); err != nil {
			return err
		}
		if err := write(t.details, index*unsafe.Sizeof(balancerBackendDetail{}), slots[i].detail); err != nil {
			return err
		}
	}
	return nil
}

// readRing returns size entries of the ring at the chunk base.
func (t *tables) readRing(base, size uint32) ([]uint16, error) {
	buf := make([]byte, 2*size)
	if _, err := t.rings.ReadAt(buf, int64(base)*int64(unsafe.Sizeof(balancerRingChunk{}))); err != nil {
		return nil, err
	}
	ring := make([]uint16, size)
	for i := range ring {
		ring[i] = binary.NativeEndian.Uint16(buf[2*i:])
	}
	return ring, nil
}

// chunks is the number of elements of the ring table that size entries take.
func chunks(size uint32) uint32 { return (size + ringChunk - 1) / ringChunk }
