// SPDX-License-Identifier: Apache-2.0

package ecmp

import "net/netip"

// family is that of addresses, as results are labelled.
type family string

const (
	ipv4 family = "ipv4"
	ipv6 family = "ipv6"
)

// families are both, in the order in which they are reported.
func families() []family { return []family{ipv4, ipv6} }

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}
