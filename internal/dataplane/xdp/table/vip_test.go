// SPDX-License-Identifier: Apache-2.0

package table

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// The VIP table holds every VIP that was put and not deleted, however full it is, and refuses a VIP
// only if others have all its places; and places that VIPs have left don't make it longer to look
// for others.
func TestVIPTable(t *testing.T) {
	table := openTables(t, Capacity{Services: 16})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	want := map[BalancerVipKey]uint32{}
	for range 20_000 {
		key := VIPKey(lb.VIP{Address: netip.AddrFrom4([4]byte{10, 1, 1, byte(random.IntN(256))}), Port: 80, Protocol: lb.TCP})
		if _, there := want[key]; there || len(want) == 60 { // of 64 places
			must(t, table.VIPs.Delete(key))
			delete(want, key)
		} else {
			number := random.Uint32N(1000) + 1
			if err := table.VIPs.Put(key, number); err == nil {
				want[key] = number
			} else if !placesAreTaken(t, table, key) {
				t.Fatal(err)
			}
		}
	}
	have := map[BalancerVipKey]uint32{}
	err := table.VIPs.Each(func(key BalancerVipKey, number uint32) error {
		have[key] = number
		return nil
	})
	if err != nil || !maps.Equal(have, want) {
		t.Errorf("table %v, error %v, want %v", have, err, want)
	}
	for key := range want {
		must(t, table.VIPs.Delete(key))
	}
	for place := range elements(BalancerMapVips, table.Maps.Vips) {
		found, err := read[BalancerVipPlace](table.VIPs.places, place)
		if err != nil || found.Number == vipDeleted && nextIsUnused(t, table, place) {
			t.Errorf("place %d: number %d, error %v", place, found.Number, err)
		}
		if found.Key != (BalancerVipKey{}) {
			t.Errorf("place %d: number %d, key of %s", place, found.Number, VIPOf(found.Key))
		}
	}
}

// placesAreTaken reports whether VIPs have all places where a VIP may be.
func placesAreTaken(t *testing.T, table *Tables, key BalancerVipKey) bool {
	taken := true
	err := table.VIPs.search(key, func(_ uint32, found BalancerVipPlace) bool {
		taken = found.Number != vipUnused && found.Number != vipDeleted
		return taken
	})
	must(t, err)
	return taken
}

// VIPs that keep another one out of one node's table don't do so at another node.
func TestVIPPlacesAreSecret(t *testing.T) {
	nodes := [2]*Tables{openTables(t, Capacity{Services: 1024}), openTables(t, Capacity{Services: 1024})}
	mask := elements(BalancerMapVips, nodes[0].Maps.Vips) - 1
	victim := VIPKey(lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 443, Protocol: lb.TCP})
	placed := map[uint32]bool{}
	for port := 1; len(placed) < vipSearch && port < 1<<24; port++ {
		key := VIPKey(lb.VIP{
			Address: netip.AddrFrom4([4]byte{10, 1, 2, byte(port >> 16)}), Port: uint16(port), Protocol: lb.TCP,
		})
		after := (nodes[0].VIPs.home(key) - nodes[0].VIPs.home(victim)) & mask
		if after >= vipSearch || placed[after] {
			continue
		}
		placed[after] = true
		for _, node := range nodes {
			must(t, node.VIPs.Put(key, uint32(len(placed))))
		}
	}
	if err := nodes[0].VIPs.Put(victim, 777); err == nil {
		t.Fatalf("%d VIPs keep none out of the table that they are for", len(placed))
	}
	must(t, nodes[1].VIPs.Put(victim, 777))
}

func nextIsUnused(t *testing.T, table *Tables, place uint32) bool {
	t.Helper()
	next, err := read[BalancerVipPlace](table.VIPs.places, (place+1)&(elements(BalancerMapVips, table.Maps.Vips)-1))
	must(t, err)
	return next.Number == vipUnused
}

// The places of neighbouring addresses and ports are spread, also if the secrets depend on
// their upper bits only, as products of long words would, or have the sums of neighbours
// meet in four places of the table.
func TestVIPPlaceDistribution(t *testing.T) {
	for name, secret := range map[string]func(i uint64) uint64{
		"upper bits": func(i uint64) uint64 { return 0x9e3779b97f4a7c15 * i &^ 0xff },
		"quarters":   func(uint64) uint64 { return 1<<62 | 1<<33 },
		"last byte":  func(uint64) uint64 { return 1<<38 | 1<<9 },
	} {
		table := openTables(t, Capacity{Services: 512})
		for i := range table.VIPs.secrets {
			table.VIPs.secrets[i] = secret(uint64(i + 1))
		}
		homes := map[uint32]bool{}
		for i := range 512 {
			vip := lb.VIP{Address: netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}), Port: 80, Protocol: lb.TCP}
			if i >= 256 {
				vip = lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: uint16(1000 + i), Protocol: lb.TCP}
			}
			homes[table.VIPs.home(VIPKey(vip))] = true
			if err := table.VIPs.Put(VIPKey(vip), uint32(i+1)); err != nil {
				t.Fatalf("%s: VIP %d of 512: %v", name, i, err)
			}
		}
		if len(homes) < 256 {
			t.Errorf("%s: 512 VIPs begin at %d places", name, len(homes))
		}
	}
}
