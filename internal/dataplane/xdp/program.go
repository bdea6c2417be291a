// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp/counter"
)

// layout is the version of the tables' layout; it is a part of the pin path, so
// that an agent never reads tables that it doesn't understand.
const layout = "v2"

// program is the loaded balancer with its tables.
type program struct {
	balancerObjects
	*tables
	exits counter.Set
}

// load loads the program and makes or adopts the tables that are pinned in dir.
func load(dir string, seed uint64) (*program, error) {
	if err := mountBPF(dir); err != nil {
		return nil, err
	}
	pins := filepath.Join(dir, layout)
	if err := os.MkdirAll(pins, 0o700); err != nil {
		return nil, fmt.Errorf("pin directory: %w", err)
	}
	spec, err := specification(seed)
	if err != nil {
		return nil, err
	}
	for _, m := range spec.Maps {
		if !strings.HasPrefix(m.Name, ".") { // read-only data belongs to one program
			m.Pinning = ebpf.PinByName
		}
	}
	p := &program{}
	opts := &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: pins}}
	if err := spec.LoadAndAssign(&p.balancerObjects, opts); err != nil {
		return nil, loadError(pins, err)
	}
	if p.exits, err = counter.New(spec.Types, "counter", "COUNTER_", p.Counters); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if p.tables, err = newTables(p.balancerMaps); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// specification is the program as compiled, with the sizes of its tables and
// its constants set.
func specification(seed uint64) (*ebpf.CollectionSpec, error) {
	spec, err := loadBalancer()
	if err != nil {
		return nil, err
	}
	for name, entries := range map[string]uint32{
		balancerMapVips:           maxServices,
		balancerMapServices:       maxServices,
		balancerMapRings:          chunks(maxRingEntries),
		balancerMapBackends:       maxBackends,
		balancerMapBackendDetails: maxBackends,
		balancerMapBackendStats:   maxBackends,
		balancerMapFlows:          maxFlows,
		balancerMapFlowStats:      maxServices,
	} {
		spec.Maps[name].MaxEntries = entries
	}
	if err := spec.Variables[balancerVarHashSeed].Set(seed); err != nil {
		return nil, fmt.Errorf("constant %s: %w", balancerVarHashSeed, err)
	}
	return spec, allFeatures.set(spec)
}

// loadError adds what the user can do about an error of the kernel.
func loadError(pins string, err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier):
		return fmt.Errorf("kernel refuses the balancer program: %w", verifier)
	case errors.Is(err, ebpf.ErrMapIncompatible):
		return fmt.Errorf("tables in %s were made by another version of fairlead: stop its agent and run `fairlead agent --remove`: %w", pins, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("loading the balancer program needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: %w", err)
	}
	return fmt.Errorf("balancer program: %w", err)
}
