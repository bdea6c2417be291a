// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"fmt"
	"net/netip"
	"strings"
)

// ExhaustedError says that all addresses of a family are assigned, in each of the
// pools that could have given one.
type ExhaustedError struct {
	Pools  []string
	Family Family
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("%s: no free %s address", named(e.Pools), e.Family)
}

// NoPoolError says that there is no pool from which an owner could get an address of
// a family. Pools are those that it may get any from: it named one, or they assign
// automatically.
type NoPoolError struct {
	Pools  []string
	Family Family
}

func (e *NoPoolError) Error() string {
	if len(e.Pools) > 0 {
		return fmt.Sprintf("%s: no %s addresses in there", named(e.Pools), e.Family)
	}
	return fmt.Sprintf("no pool that may be used assigns %s addresses automatically", e.Family)
}

// PoolError says that an owner can't use the pool that it named.
type PoolError struct {
	Pool string
	// Unknown says that there is no such pool; else there is, but the owner is none
	// of those whom it is for.
	Unknown bool
}

func (e *PoolError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("pool %s: there is no such pool", e.Pool)
	}
	return fmt.Sprintf("pool %s: its selectors don't match", e.Pool)
}

// NotInPoolError says that a wanted address is in none of the pools that the owner
// may use.
type NotInPoolError struct {
	Address netip.Addr
	Pools   []string
}

func (e *NotInPoolError) Error() string {
	if len(e.Pools) == 0 {
		return fmt.Sprintf("address %s: there is no pool that may be used", e.Address)
	}
	return fmt.Sprintf("address %s: not in %s", e.Address, named(e.Pools))
}

// TakenError says that an address has an owner beside whom the asking one can't be.
type TakenError struct {
	Address netip.Addr
	By      Owner
	// Why is why they can't share it.
	Why string
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("address %s: %s has it, and %s", e.Address, e.By, e.Why)
}

// FamilyError says that an address is of a family that the owner doesn't ask for, or
// the second one of its family.
type FamilyError struct {
	Address netip.Addr
	Second  bool
}

func (e *FamilyError) Error() string {
	if e.Second {
		return fmt.Sprintf("address %s: a second %s address, one is enough", e.Address, FamilyOf(e.Address))
	}
	return fmt.Sprintf("address %s: %s isn't among the IP families that are asked for", e.Address, FamilyOf(e.Address))
}

// named writes the names of pools, of which there is at least one.
func named(pools []string) string {
	if len(pools) == 1 {
		return "pool " + pools[0]
	}
	return "pools " + strings.Join(pools, ", ")
}
