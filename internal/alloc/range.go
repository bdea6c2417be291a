// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"strings"

	"go4.org/netipx"
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

// ParseRange reads a CIDR without host bits, such as "10.1.0.0/24", or the first and
// the last address, such as "fd00::10-fd00::1f". Zones and IPv4-mapped IPv6 addresses
// are errors. All addresses of a range can be assigned, also the first and the last of
// a CIDR: to routers a VIP is a host route.
func ParseRange(text string) (netipx.IPRange, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		return parseCIDR(text)
	}
	from, bad := netip.ParseAddr(strings.TrimSpace(first))
	to, worse := netip.ParseAddr(strings.TrimSpace(last))
	r := netipx.IPRangeFrom(from, to)
	switch {
	case bad != nil || worse != nil || from.Zone() != "" || to.Zone() != "":
		return netipx.IPRange{}, fmt.Errorf("range %q: want a CIDR, or two addresses without zones and a hyphen between them", text)
	case from.Is4In6() || to.Is4In6():
		return netipx.IPRange{}, fmt.Errorf("range %q: want IPv4 addresses in IPv4 notation", text)
	case !r.IsValid():
		return netipx.IPRange{}, fmt.Errorf("range %q: want two addresses of one family, the lower one first", text)
	}
	return r, nil
}

func parseCIDR(text string) (netipx.IPRange, error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		err = fmt.Errorf("range %q: want a CIDR, or two addresses with a hyphen between them", text)
	case prefix.Addr().Is4In6():
		err = fmt.Errorf("range %q: want an IPv4 address in IPv4 notation", text)
	case prefix != prefix.Masked():
		err = fmt.Errorf("range %q: host bits are set; the CIDR is %s", text, prefix.Masked())
	}
	if err != nil {
		return netipx.IPRange{}, err
	}
	return netipx.RangeOfPrefix(prefix), nil
}

// WithoutZeroAnd255 returns a range without the IPv4 addresses that end in .0 or .255. IPv6 is
// unchanged.
func WithoutZeroAnd255(r netipx.IPRange) (rest []netipx.IPRange) {
	if !r.From().Is4() {
		return []netipx.IPRange{r}
	}
	first, last := r.From().As4(), r.To().As4()
	to := binary.BigEndian.Uint32(last[:])
	for network := uint64(binary.BigEndian.Uint32(first[:]) &^ 255); network <= uint64(to); network += 256 {
		var low, high [4]byte
		binary.BigEndian.PutUint32(low[:], uint32(network)+1)
		binary.BigEndian.PutUint32(high[:], uint32(network)+254)
		part := netipx.IPRangeFrom(netip.AddrFrom4(low), netip.AddrFrom4(high))
		if part.From().Less(r.From()) {
			part = netipx.IPRangeFrom(r.From(), part.To())
		}
		if r.To().Less(part.To()) {
			part = netipx.IPRangeFrom(part.From(), r.To())
		}
		if part.IsValid() {
			rest = append(rest, part)
		}
	}
	return rest
}

// size returns the number of addresses of a range, at most math.MaxUint64.
func size(r netipx.IPRange) uint64 {
	from, to := r.From().As16(), r.To().As16()
	low, borrow := bits.Sub64(binary.BigEndian.Uint64(to[8:]), binary.BigEndian.Uint64(from[8:]), 0)
	high, _ := bits.Sub64(binary.BigEndian.Uint64(to[:8]), binary.BigEndian.Uint64(from[:8]), borrow)
	if high > 0 || low == math.MaxUint64 {
		return math.MaxUint64
	}
	return low + 1
}
