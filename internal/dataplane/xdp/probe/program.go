// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/counter"
)

// objects are the programs and the tables that are theirs alone; the others are
// the balancer's.
type objects struct {
	AddressProbe *ebpf.Program `ebpf:"address_probe"`
	SendProbe    *ebpf.Program `ebpf:"send_probe"`
	Targets      *ebpf.Map     `ebpf:"probe_targets"`
	Counters     *ebpf.Map     `ebpf:"probe_counters"`
}

// close ends what the process holds; what is attached goes on.
func (o *objects) close() error {
	return errors.Join(o.AddressProbe.Close(), o.SendProbe.Close(), o.Targets.Close(), o.Counters.Close())
}

// load loads the programs on the balancer's tables.
func load(cfg Config) (objects, counter.Set, error) {
	var o objects
	spec, err := loadProbe()
	if err != nil {
		return o, counter.Set{}, err
	}
	tables := maps.Clone(cfg.Tables)
	maps.DeleteFunc(tables, func(name string, table *ebpf.Map) bool {
		ours, ok := spec.Maps[name]
		if ok {
			ours.MaxEntries = table.MaxEntries()
		}
		return !ok
	})
	spec.Maps[probeMapProbeTargets].MaxEntries = uint32(cfg.Targets)
	if err := spec.Variables[probeVarHashSeed].Set(cfg.Seed); err != nil {
		return o, counter.Set{}, fmt.Errorf("constant %s: %w", probeVarHashSeed, err)
	}
	if err := spec.LoadAndAssign(&o, &ebpf.CollectionOptions{MapReplacements: tables}); err != nil {
		return o, counter.Set{}, fmt.Errorf("probe programs: %w", err)
	}
	set, err := counter.New(spec.Types, "probe_counter", "PROBE_COUNTER_", o.Counters)
	return o, set, err
}
