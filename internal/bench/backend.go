// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// Backend is a backend as a forwarding mode needs it: in the modes of segments
// its address is also that of the tunnel end point which it is behind.
func Backend(mode lb.Forward, address netip.Addr) lb.Backend {
	b := lb.Backend{Address: address, Port: 80, Weight: 1}
	if segment := mode.Overlay(); segment != lb.SegmentUnset {
		b.TunnelEnd = address
		b.MAC = lb.MAC{2, 0, 0, 0, 0, 3}
		b.Segment = lb.Segment{Type: segment, ID: 100}
	}
	return b
}
