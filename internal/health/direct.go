// SPDX-License-Identifier: Apache-2.0

package health

import (
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// DirectPaths probes backends at their own addresses, as the kernel routes
// them: for data planes whose packets have no other way.
type DirectPaths struct{}

// Open never fails, and holds nothing.
func (DirectPaths) Open(_ *lb.Service, backend lb.Backend, port uint16) (Path, func(), error) {
	return Path{Target: netip.AddrPortFrom(backend.Address, port)}, func() {}, nil
}
