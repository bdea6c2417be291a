// SPDX-License-Identifier: Apache-2.0

package table

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// Layout is the version of the tables' layout: the name of the folder, in an
// instance's pin directory, that holds the tables. It changes with every change
// of bpf/core/types.h or bpf/core/maps.h that an older program or agent would
// misunderstand.
//
// Hand-over: the links are pinned next to that folder, whatever the layout. An
// agent of another layout makes tables of its own from its configuration, puts
// its program in the place of the old one (one atomic step for each interface)
// and only then removes the old tables. Nodes that are given the same backends
// build the same rings, unless the release changes how rings are built, so flows
// on stable entries stay where they are; the old tables' records of flows on
// unstable ones are not taken along. So the quiet moment for such an upgrade is
// when `fairlead services` shows no unstable entries.
const Layout = "v11"

// RemoveOtherLayouts removes the tables, and links, that agents of other
// layouts left in a pin directory.
func RemoveOtherLayouts(dir, present string) error {
	folders, _ := fs.Glob(os.DirFS(dir), "v*") // the pattern is valid
	var errs []error
	for _, folder := range folders {
		if folder != present {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, folder)))
		}
	}
	return errors.Join(errs...)
}

// resize gives the pinned table of that name, if there is one, the size that spec
// has. The records move to the new table; the running program uses the old one
// until it is replaced.
func resize[T any](pins string, spec *ebpf.MapSpec) error {
	return replace(pins, spec, func(fresh, old *ebpf.Map) error {
		var failed error
		err := EachRecord(old, func(key uint64, record *T) {
			if err := fresh.Put(key, record); err != nil {
				failed = err
			}
		})
		return errors.Join(err, failed)
	})
}

// resizeSessions is resize for a table of sessions. Those without a place in
// a smaller table are lost.
func resizeSessions(pins string, spec *ebpf.MapSpec) error {
	return replace(pins, spec, func(fresh, old *ebpf.Map) error {
		secrets, err := pinnedSecrets(pins)
		if err != nil {
			return err
		}
		from, to := &Sessions{secrets: secrets.PlaceSecrets}, &Sessions{secrets: secrets.PlaceSecrets}
		defer from.Close()
		defer to.Close()
		if err := errors.Join(from.open(old), to.open(fresh)); err != nil {
			return err
		}
		from.Each(func(key uint64, entry *BalancerNatSession) { _ = to.Put(key, entry) })
		return nil
	})
}

// pinnedSecrets are those on which places in pinned tables depend.
func pinnedSecrets(pins string) (secrets BalancerSecrets, err error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(pins, BalancerMapSecrets), nil)
	if err != nil {
		return secrets, err
	}
	defer m.Close()
	return secrets, m.Lookup(uint32(0), &secrets)
}

// replace gives the pinned table of that name, if there is one, the size that spec has:
// move moves the records to the new one, as far as they fit.
func replace(pins string, spec *ebpf.MapSpec, move func(fresh, old *ebpf.Map) error) error {
	pin := filepath.Join(pins, spec.Name)
	old, err := ebpf.LoadPinnedMap(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pinned table %s: %w", spec.Name, err)
	}
	defer old.Close()
	if old.MaxEntries() == spec.MaxEntries || spec.Compatible(old) == nil {
		return nil
	}
	sized := spec.Copy()
	sized.Pinning = ebpf.PinNone
	sized.MaxEntries = old.MaxEntries()
	if err := sized.Compatible(old); err != nil {
		return openError(pins, err)
	}
	if err := replaceTable(pin, spec, func(fresh *ebpf.Map) error { return move(fresh, old) }); err != nil {
		return fmt.Errorf("table %s: resize: %w", spec.Name, err)
	}
	return nil
}

// replaceTable pins a table that fill has written in the place of another one.
func replaceTable(pin string, spec *ebpf.MapSpec, fill func(fresh *ebpf.Map) error) error {
	spec = spec.Copy()
	spec.Pinning = ebpf.PinNone
	fresh, err := ebpf.NewMap(spec)
	if err != nil {
		return err
	}
	defer fresh.Close()
	if err := fill(fresh); err != nil {
		return err
	}
	second := pin + "_new"
	if err := os.Remove(second); err != nil && !errors.Is(err, os.ErrNotExist) { // of an agent that was killed
		return err
	}
	if err := fresh.Pin(second); err != nil {
		return err
	}
	return os.Rename(second, pin)
}
