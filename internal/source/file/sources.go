// SPDX-License-Identifier: Apache-2.0

package file

import (
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// sources reads which clients may use a service.
func sources(to *lb.Sources) reader {
	return func(v value) {
		v.readFields(
			optional("allow", allowed(&to.Allow)),
			optional("deny", list(&to.Deny, prefix)),
		)
	}
}

// allowed reads a list that says who is let in. An empty one is refused: its
// author may mean nobody, and it would mean everybody.
func allowed(to *[]netip.Prefix) reader {
	return func(v value) {
		list(to, prefix)(v)
		if *to != nil && len(*to) == 0 {
			v.failf("an empty list: leave it out to let everybody in, deny 0.0.0.0/0 or ::/0 to let nobody in")
		}
	}
}
