// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// The VIP table holds what was put and not deleted, however full it is; and
// places that VIPs have left don't make it longer to look for others.
func TestVIPTable(t *testing.T) {
	needRoot(t)
	p, err := newPlane(Config{Capacity: Capacity{Services: 16}, Log: slog.New(slog.DiscardHandler)}, newStaticHops())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	want := map[balancerVipKey]uint32{}
	for range 20_000 {
		key := vipKey(lb.VIP{Address: netip.AddrFrom4([4]byte{10, 1, 1, byte(random.IntN(64))}), Port: 80, Protocol: lb.TCP})
		if _, there := want[key]; there || len(want) == 48 { // three times as many as promised
			if err := p.kernel.deleteVIP(key); err != nil {
				t.Fatal(err)
			}
			delete(want, key)
		} else {
			want[key] = random.Uint32N(1000) + 1
			if err := p.kernel.putVIP(key, want[key]); err != nil {
				t.Fatal(err)
			}
		}
	}
	have := map[balancerVipKey]uint32{}
	err = p.kernel.eachVIP(func(key balancerVipKey, number uint32) error {
		have[key] = number
		return nil
	})
	if err != nil || !maps.Equal(have, want) {
		t.Errorf("table %v, error %v, want %v", have, err, want)
	}
	for key := range want {
		if err := p.kernel.deleteVIP(key); err != nil {
			t.Fatal(err)
		}
	}
	for place := range p.kernel.maps.Vips.MaxEntries() {
		found, err := read[balancerVipPlace](p.kernel.vips, place)
		if err != nil || found.Number == vipLeft && p.nextIsNever(t, place) {
			t.Errorf("place %d: number %d, error %v", place, found.Number, err)
		}
	}
}

func (p *Plane) nextIsNever(t *testing.T, place uint32) bool {
	t.Helper()
	next, err := read[balancerVipPlace](p.kernel.vips, (place+1)&(p.kernel.maps.Vips.MaxEntries()-1))
	if err != nil {
		t.Fatal(err)
	}
	return next.Number == vipNever
}
