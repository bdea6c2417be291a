// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// address is an address of this machine.
type address struct {
	index  int
	prefix netip.Prefix
	// secondary marks IPv4's secondary and IPv6's temporary addresses, which
	// share a flag; deprecated ones whose preferred lifetime is over.
	secondary, deprecated bool
}

// localAddress returns an address of netlink, and false if packets can't have
// it as their source: it is not usable yet, or only within this machine.
func localAddress(a netlink.Addr) (address, bool) {
	const unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
	if a.IPNet == nil || a.Scope >= unix.RT_SCOPE_HOST {
		return address{}, false
	}
	if a.Flags&unusable != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0 {
		return address{}, false
	}
	ones, _ := a.Mask.Size()
	return address{
		index:      a.LinkIndex,
		prefix:     netip.PrefixFrom(addressOf(a.IP), ones),
		secondary:  a.Flags&unix.IFA_F_SECONDARY != 0,
		deprecated: a.Flags&unix.IFA_F_DEPRECATED != 0,
	}, true
}

// sourceAddress picks the source address of packets that leave through the
// interface index by way of next to target: what the kernel does for a socket
// without one if the route has no preference. For IPv4 that is an address whose
// network has the next hop, for IPv6 the rules 1 to 8 of RFC 6724 as far as they
// matter here. An address of another interface is the last resort (an interface
// without one, RFC 5549). The result is invalid if there is none.
func sourceAddress(all []address, index int, next, target netip.Addr) netip.Addr {
	var best netip.Addr
	var most suitability
	for _, a := range all {
		own := a.prefix.Addr()
		foreign := a.index != index
		if own.BitLen() != target.BitLen() || (foreign && own.IsLinkLocalUnicast()) {
			continue
		}
		towards := target
		if target.Is4() {
			towards = next
		}
		s := suitability{
			one(!foreign),
			one(own.IsLinkLocalUnicast() == target.IsLinkLocalUnicast()),
			one(!a.deprecated),
			one(!a.secondary),
			match(a.prefix, towards),
		}
		if !best.IsValid() || slices.Compare(s[:], most[:]) > 0 {
			best, most = own, s
		}
	}
	return best
}

// suitability holds how far an address meets each wish, the weightiest first.
type suitability [5]int

func one(met bool) int {
	if met {
		return 1
	}
	return 0
}

// match says how well an address of this machine suits: the length of the
// prefix that it has in common with towards, at most its own (RFC 6724, section
// 2.2). For IPv4 only the whole counts.
func match(own netip.Prefix, towards netip.Addr) int {
	if own.Addr().Is4() {
		return one(own.Contains(towards))
	}
	a, b := own.Addr().As16(), towards.As16()
	n := 0
	for i := range a {
		zeros := bits.LeadingZeros8(a[i] ^ b[i])
		n += zeros
		if zeros < 8 {
			break
		}
	}
	return min(n, own.Bits())
}
