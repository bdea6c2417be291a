// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp/counter"
)

// kernel is what a plane has in the kernel: the tables, and the program that
// reads them.
type kernel struct {
	*tables
	exits counter.Set
	// shared are the tables by name.
	shared   map[string]*ebpf.Map
	capacity Capacity
	seed     uint64
	nat      NAT
	// program is nil until it is known what it needs.
	program  *ebpf.Program
	features features
}

// openKernel makes the tables, or adopts those that are pinned in the folder
// pins. Without a folder they end with the process.
func openKernel(pins string, capacity Capacity, seed uint64, nat NAT) (*kernel, error) {
	spec, err := loadBalancer()
	if err != nil {
		return nil, err
	}
	capacity.set(spec)
	spec.Programs, spec.Variables = nil, nil
	options := ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: pins}}
	for name, m := range spec.Maps {
		switch {
		case strings.HasPrefix(name, "."):
			delete(spec.Maps, name) // read-only data belongs to a program
		case name == balancerMapTraces: // is nobody's state
		case pins != "":
			m.Pinning = ebpf.PinByName
		}
	}
	if pins != "" {
		if err := os.MkdirAll(pins, 0o700); err != nil {
			return nil, fmt.Errorf("pin directory: %w", err)
		}
		err := errors.Join(
			resize[balancerFlow](pins, spec.Maps[balancerMapFlows]),
			resize[balancerNatSession](pins, spec.Maps[balancerMapNatSessions]),
		)
		if err != nil {
			return nil, err
		}
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		return nil, loadError(pins, err)
	}
	k := &kernel{shared: maps.Clone(collection.Maps), capacity: capacity, seed: seed, nat: nat}
	var tables balancerMaps
	if err := collection.Assign(&tables); err != nil {
		collection.Close()
		return nil, err
	}
	if k.exits, err = counter.New(spec.Types, "counter", "COUNTER_", tables.Counters); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	if k.tables, err = newTables(tables); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// compile loads a program with these features on the tables.
func (k *kernel) compile(f features) (*ebpf.Program, error) {
	spec, err := k.specification(f)
	if err != nil {
		return nil, err
	}
	var programs balancerPrograms
	if err := spec.LoadAndAssign(&programs, &ebpf.CollectionOptions{MapReplacements: k.shared}); err != nil {
		return nil, loadError("", err)
	}
	return programs.Balance, nil
}

// programName tells, also to a later agent, what a program contains. The kernel
// keeps 15 characters of a name.
const programName = "balance_%x"

// specification is the program as compiled, with its constants and the sizes of
// its tables.
func (k *kernel) specification(f features) (*ebpf.CollectionSpec, error) {
	spec, err := loadBalancer()
	if err != nil {
		return nil, err
	}
	k.capacity.set(spec)
	if err := spec.Variables[balancerVarHashSeed].Set(k.seed); err != nil {
		return nil, fmt.Errorf("constant %s: %w", balancerVarHashSeed, err)
	}
	if err := spec.Variables[balancerVarVipMask].Set(uint32(vipPlaces(k.capacity.Services) - 1)); err != nil {
		return nil, fmt.Errorf("constant %s: %w", balancerVarVipMask, err)
	}
	if err := k.nat.set(spec); err != nil {
		return nil, err
	}
	spec.Programs[balancerProgBalance].Name = fmt.Sprintf(programName, uint32(f))
	return spec, f.set(spec)
}

// Close closes what the process has open; what is pinned or attached stays.
func (k *kernel) Close() error {
	var errs []error
	if k.program != nil {
		errs = append(errs, k.program.Close())
	}
	for _, m := range k.shared {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
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
