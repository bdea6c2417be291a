// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// arrays are the tables that are one value of the kernel's, with the sizes of their elements:
// programs know its address and need no look-up (element() of bpf/core/maps.h).
var arrays = map[string]uintptr{
	BalancerMapVips:           unsafe.Sizeof(BalancerVipPlace{}),
	BalancerMapServices:       unsafe.Sizeof(BalancerService{}),
	BalancerMapServiceDetails: unsafe.Sizeof(BalancerServiceDetail{}),
	BalancerMapRings:          unsafe.Sizeof(BalancerRingChunk{}),
	BalancerMapBackends:       unsafe.Sizeof(BalancerBackend{}),
	BalancerMapEgress:         unsafe.Sizeof(BalancerEgress{}),
	BalancerMapRemotes:        unsafe.Sizeof(BalancerAddress{}),
	BalancerMapBackendDetails: unsafe.Sizeof(BalancerBackendDetail{}),
}

// elements is how many elements the table of that name has.
func elements(name string, m *ebpf.Map) uint32 {
	if size, ok := arrays[name]; ok {
		return m.ValueSize() / uint32(size)
	}
	return m.MaxEntries()
}

// kernelSpec is the specification of the kernel's table for one that counts its elements.
func kernelSpec(spec *ebpf.MapSpec) *ebpf.MapSpec {
	spec = spec.Copy()
	if _, ok := arrays[spec.Name]; ok {
		spec.Value = &btf.Array{Index: spec.Key, Type: spec.Value, Nelems: spec.MaxEntries}
		spec.ValueSize, spec.MaxEntries = spec.ValueSize*spec.MaxEntries, 1
	}
	return spec
}

// Use lets programs be loaded on a data plane's tables, by name, that they use: it sets
// the constants that follow from sizes of tables. The specification is as compiled.
func Use(tables map[string]*ebpf.Map, spec *ebpf.CollectionSpec) (*ebpf.CollectionOptions, error) {
	options := &ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{}}
	for name, m := range spec.Maps {
		table := tables[name]
		if table == nil {
			continue
		}
		options.MapReplacements[name] = table
		m.MaxEntries = elements(name, table)
		for constant, value := range sizeConstants(name, m.MaxEntries) {
			if err := spec.Variables[constant].Set(value); err != nil {
				return nil, fmt.Errorf("constant %s: %w", constant, err)
			}
		}
		spec.Maps[name] = kernelSpec(m)
	}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			if _, ok := arrays[ins.Reference()]; ok && ins.IsLoadFromMap() {
				ins.Src = asm.PseudoMapValue
			}
		}
	}
	return options, nil
}

// sizeConstants are the constants of programs that follow from how many elements a table has.
func sizeConstants(name string, elements uint32) map[string]uint32 {
	switch name {
	case BalancerMapVips:
		return map[string]uint32{BalancerVarVipMask: elements - 1, BalancerVarVipShift: vipShift(elements)}
	case BalancerMapServices:
		return map[string]uint32{BalancerVarServiceCount: elements}
	case BalancerMapRings:
		return map[string]uint32{BalancerVarRingCount: elements}
	case BalancerMapBackends:
		return map[string]uint32{BalancerVarBackendCount: elements}
	case BalancerMapEgress:
		return map[string]uint32{BalancerVarEgressCount: elements}
	case BalancerMapNatSessions:
		return map[string]uint32{BalancerVarSessionPlaces: elements - uint32(placesMore)}
	case BalancerMapNatPending:
		return map[string]uint32{BalancerVarPendingPlaces: elements - uint32(placesMore)}
	}
	return nil
}
