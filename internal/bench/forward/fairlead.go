// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/hook"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// fairlead is the product's own data plane in a forwarding mode, fed by hand
// instead of by an agent.
func fairlead(mode lb.Forward) device {
	d := device{name: mode.String(), role: netlab.Balancer, remembers: mode == lb.NAT}
	d.start = func(ctx context.Context, lab *netlab.Lab) (plane *xdp.Plane, err error) {
		// The directory in which netlab mounts a balancer's BPF file system.
		pins := filepath.Join(lab.State().Host(d.host()).Directory, "bpf", "bench")
		err = lab.Do(d.host(), func() error {
			plane, err = openPlane(ctx, pins, mode)
			return err
		})
		return plane, err
	}
	return d
}

// openPlane is a data plane that balances the VIP in both protocols.
func openPlane(ctx context.Context, pins string, mode lb.Forward) (*xdp.Plane, error) {
	plane, err := xdp.Open(xdp.Config{
		PinDir: pins, Interfaces: []string{deviceInterface}, Mode: hook.Native, Seed: 1, Log: slog.New(slog.DiscardHandler),
		NAT: natSource(),
	})
	if err != nil {
		return nil, err
	}
	for _, protocol := range []lb.Protocol{lb.UDP, lb.TCP} {
		svc := &lb.Service{VIP: vip(protocol), Forward: mode, MinHealthy: 1}
		for _, address := range servers() {
			svc.Backends = append(svc.Backends, bench.Backend(mode, address))
		}
		programmed, err := plane.Update(ctx, svc)
		if err == nil && programmed.InUse() != len(svc.Backends) {
			err = errors.New("a backend is not in use: " + programmed.Backends[0].Reason)
		}
		if err != nil {
			return nil, errors.Join(err, plane.Close())
		}
	}
	if err := plane.Attach(); err != nil {
		return nil, errors.Join(err, plane.Close())
	}
	return plane, nil
}

// natSource is more addresses and ports than all sessions take at one backend, so
// that a new flow finds a free one at once.
func natSource() xdp.NAT {
	source := xdp.NAT{FirstPort: 1024, LastPort: 65535}
	for a := netip.MustParseAddr("10.0.2.128"); len(source.Addresses) < 8; a = a.Next() {
		source.Addresses = append(source.Addresses, a)
	}
	return source
}
