// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"fmt"
	"net/netip"
	"strings"
)

// Error says why a request failed.
type Error struct {
	// Reason is a constant of this package, or a caller's for requests that it rejects.
	Reason string
	Text   string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Reasons of errors, as in conditions and Events of Kubernetes.
const (
	// Exhausted: no pool has a free address of a family.
	Exhausted = "PoolExhausted"
	// Scarce: the namespace has so many addresses of a pool that the last ones are for others.
	Scarce = "PoolScarce"
	// NoPool: no pool that the owner may use has addresses of a family.
	NoPool = "NoPool"
	// BadPool: the requested pool doesn't exist, or its selectors don't match.
	BadPool = "BadPool"
	// NotInPool: a requested address is in none of the pools that the owner may use.
	NotInPool = "AddressNotInPool"
	// Taken: another owner has a requested address, which can't be shared.
	Taken = "AddressTaken"
	// InUse: a requested address is an address of a node or of a router.
	InUse = "AddressInUse"
	// Retained: a requested address is retained for its former namespace, another one.
	Retained = "AddressRetained"
	// BadFamily: a requested address is of a family that the owner doesn't request, or the
	// second one of its family.
	BadFamily = "FamilyMismatch"
)

func errorf(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

func secondOfFamily(a netip.Addr) *Error {
	return errorf(BadFamily, "address %s: a second %s address", a, FamilyOf(a))
}

// and joins the errors of two families, of which either may be nil. An exhausted pool is
// the more important reason.
func (e *Error) and(o *Error) *Error {
	switch {
	case e == nil:
		return o
	case o == nil:
		return e
	case o.Reason == Exhausted:
		return errorf(Exhausted, "%s; %s", e, o)
	}
	return errorf(e.Reason, "%s; %s", e, o)
}

// named joins the names of pools, of which there is at least one.
func named(pools poolList) string {
	names := make([]string, len(pools))
	for i, p := range pools {
		names[i] = p.Name
	}
	if len(names) == 1 {
		return "pool " + names[0]
	}
	return "pools " + strings.Join(names, ", ")
}
