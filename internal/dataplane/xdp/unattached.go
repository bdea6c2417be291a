// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"log/slog"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
)

// OpenUnattached makes a data plane whose program is attached nowhere, for measurements
// of the program alone. All backends are reached. Its tables end with it.
func OpenUnattached(c table.Capacity) (*Plane, error) {
	return newPlane(Config{Capacity: c, Seed: 1, Log: slog.New(slog.DiscardHandler)}, fixedHops{})
}

// Program is one that suits the services as they are now, as Attach would take
// it. It is closed with the data plane.
func (p *Plane) Program() (*ebpf.Program, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, table.ErrClosed
	}
	return p.programs.Specialise()
}
