// SPDX-License-Identifier: Apache-2.0

package file

import "fairlead.io/fairlead/internal/lb"

// readBackend leaves the port at 0 where it is not given: the service's port is
// known only when the whole service has been read.
func readBackend(v value, b *lb.Backend) {
	b.Weight = 1
	v.readFields(
		required("address", address(&b.Address)),
		optional("port", port(&b.Port)),
		optional("weight", number(&b.Weight, 0, lb.MaxWeight)),
		optional("node", address(&b.Node)),
		optional("outside", flag(&b.Outside)),
		optional("tunnelEnd", address(&b.TunnelEnd)),
		optional("mac", word(&b.MAC)),
		optional("segment", segment(&b.Segment)),
		optional("serverID", word(&b.ServerID)),
	)
}
