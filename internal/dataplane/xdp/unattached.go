// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"log/slog"
	"net/netip"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
	"fairlead.io/fairlead/internal/lb"
)

// Unattached is a data plane whose program runs nowhere until somebody puts
// packets into it, for measurements of the program alone. All backends are
// reached. Its tables end with it.
type Unattached struct {
	*Plane
}

// OpenUnattached makes tables of the given capacity.
func OpenUnattached(c Capacity) (*Unattached, error) {
	cfg := Config{Capacity: c, Seed: 1, Log: slog.New(slog.DiscardHandler)}
	plane, err := newPlane(cfg, backHop{stale: make(chan lb.VIP)})
	if err != nil {
		return nil, err
	}
	return &Unattached{plane}, nil
}

// Program is one that suits the services as they are now, as Attach would take
// it. It is closed with the data plane.
func (u *Unattached) Program() (*ebpf.Program, error) { return u.loaded() }

// backHop is a resolver that reaches every backend through the interface that
// packets came from, which for BPF_PROG_TEST_RUN is the loopback.
type backHop struct{ stale chan lb.VIP }

func (backHop) Follow(_ lb.VIP, targets []nexthop.Target) []nexthop.Result {
	results := make([]nexthop.Result, len(targets))
	for i, t := range targets {
		last := t.Address.As16()
		hop := nexthop.Hop{
			Interface: "lo", Index: 1, MTU: 1500,
			Source:      lb.MAC{2, 0, 0, 0, 0, 1},
			Destination: lb.MAC{2, 1, last[12], last[13], last[14], last[15]},
			Relay:       t.Relay.IsValid(),
		}
		if !t.OnLink {
			hop.Local = netip.AddrFrom4([4]byte{10, 0, 2, 1})
			if t.Address.Is6() {
				hop.Local = netip.AddrFrom16([16]byte{0: 0xfd, 15: 1})
			}
		}
		results[i].Hop = hop
	}
	return results
}

func (backHop) Forget(lb.VIP)            {}
func (backHop) Ports(int) []nexthop.Port { return nil }
func (b backHop) Changed() <-chan lb.VIP { return b.stale }
func (backHop) Close() error             { return nil }
