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
		NAT: natSource(), Capacity: capacity(mode),
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

// natSessions is how many flows a NAT device remembers. It is full when new flows
// are measured: each takes the place of the one that was silent for longest.
const natSessions = 1 << 20

// capacity is the default one but for sessions, which only NAT has.
func capacity(mode lb.Forward) xdp.Capacity {
	if mode == lb.NAT {
		return xdp.Capacity{Sessions: natSessions}
	}
	return xdp.Capacity{Sessions: 1}
}

// natSource is so many addresses and ports that with all sessions in use one of
// eight is taken at each backend.
func natSource() xdp.NAT {
	source := xdp.NAT{FirstPort: 1024, LastPort: 65535}
	for a := netip.MustParseAddr("10.0.2.128"); len(source.Addresses) < 8; a = a.Next() {
		source.Addresses = append(source.Addresses, a)
	}
	return source
}
