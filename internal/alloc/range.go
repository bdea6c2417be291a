// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// Family is an address family, by its IP version.
type Family uint8

// The address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf returns the family of a valid address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// String returns "IPv4" or "IPv6", as Kubernetes writes them (core/v1 IPFamily).
func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// Range is a run of addresses of one family, both ends included. All of them can
// be assigned, the first and the last of a CIDR too: to routers a VIP is a host
// route, not a station of a network. Where they are stations (l2dsr in a connected
// network), a range that leaves them out says so. The zero Range has no address.
type Range struct{ from, to netip.Addr }

// ParseRange reads a CIDR without host bits, such as "10.1.0.0/24", or the first
// and the last address, such as "fd00::10-fd00::1f". Zones and IPv4-mapped IPv6
// addresses are errors.
func ParseRange(text string) (Range, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		return parseCIDR(text)
	}
	var r Range
	var err error
	if r.from, err = parseAddress(strings.TrimSpace(first)); err != nil {
		return Range{}, fmt.Errorf("range %q: %w", text, err)
	}
	if r.to, err = parseAddress(strings.TrimSpace(last)); err != nil {
		return Range{}, fmt.Errorf("range %q: %w", text, err)
	}
	if FamilyOf(r.from) != FamilyOf(r.to) {
		return Range{}, fmt.Errorf("range %q: the ends are of two families", text)
	}
	if r.to.Less(r.from) {
		return Range{}, fmt.Errorf("range %q: the first address is behind the last", text)
	}
	return r, nil
}

func parseCIDR(text string) (Range, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return Range{}, fmt.Errorf("range %q: want a CIDR, or two addresses with a hyphen between them", text)
	}
	if prefix.Addr().Is4In6() {
		return Range{}, fmt.Errorf("range %q: an IPv4 address has to be written as one", text)
	}
	if prefix != prefix.Masked() {
		return Range{}, fmt.Errorf("range %q: bits behind the prefix are set; the CIDR is %s", text, prefix.Masked())
	}
	return Range{prefix.Addr(), last(prefix)}, nil
}

func parseAddress(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("%q is not an address", text)
	case a.Is4In6():
		return netip.Addr{}, fmt.Errorf("%s: an IPv4 address has to be written as one", a)
	case a.Zone() != "":
		return netip.Addr{}, fmt.Errorf("%s: a virtual address has no zone", a)
	}
	return a, nil
}

// last returns the last address of a masked prefix.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := range bytes {
		free := min(max((i+1)*8-p.Bits(), 0), 8)
		bytes[i] |= byte(1<<free - 1)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// String returns for example "10.1.0.0-10.1.0.255".
func (r Range) String() string { return r.from.String() + "-" + r.to.String() }

// Contains reports whether an address is one of the range.
func (r Range) Contains(a netip.Addr) bool {
	return r.from.IsValid() && a.BitLen() == r.from.BitLen() && a.Zone() == "" && !a.Less(r.from) && !r.to.Less(a)
}

// size is the number of addresses, at most math.MaxUint64.
func (r Range) size() uint64 {
	if !r.from.IsValid() {
		return 0
	}
	from, to := r.from.As16(), r.to.As16()
	low, borrow := bits.Sub64(binary.BigEndian.Uint64(to[8:]), binary.BigEndian.Uint64(from[8:]), 0)
	high, _ := bits.Sub64(binary.BigEndian.Uint64(to[:8]), binary.BigEndian.Uint64(from[:8]), borrow)
	if high > 0 || low == math.MaxUint64 {
		return math.MaxUint64
	}
	return low + 1
}

// disjoint sorts ranges and makes one of those that overlap or touch, so that no
// address is in two.
func disjoint(ranges []Range) []Range {
	ranges = slices.DeleteFunc(slices.Clone(ranges), func(r Range) bool { return r == Range{} })
	slices.SortFunc(ranges, func(a, b Range) int { return a.from.Compare(b.from) })
	var merged []Range
	for _, r := range ranges {
		if n := len(merged); n > 0 && merged[n-1].reaches(r) {
			if merged[n-1].to.Less(r.to) {
				merged[n-1].to = r.to
			}
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// reaches reports whether r, which begins no later than o, overlaps it or ends
// just before it.
func (r Range) reaches(o Range) bool {
	if r.from.BitLen() != o.from.BitLen() {
		return false
	}
	return !r.to.Less(o.from) || r.to.Next() == o.from
}

// Overlaps reports whether two ranges have an address in common.
func (r Range) Overlaps(o Range) bool { return r.Contains(o.from) || o.Contains(r.from) }
