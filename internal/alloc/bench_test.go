// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"fmt"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/alloc"
)

// BenchmarkClaim lets an owner come and go that gets one address of each family,
// while so many others have theirs: out of a /16 and a /64.
func BenchmarkClaim(b *testing.B) {
	for _, n := range []int{100, 10_000, 65_535} {
		b.Run(fmt.Sprintf("owners=%d", n), func(b *testing.B) {
			a := alloc.New()
			a.SetPools([]alloc.Pool{pool(b, "p", "10.1.0.0/16", "fd00::/64")})
			for i := range n {
				claim(b, a, fmt.Sprint(i))
			}
			newcomer := alloc.Owner{Kind: "Service", Namespace: "b", Name: "newcomer"}
			b.ReportAllocs()
			for b.Loop() {
				claim(b, a, newcomer.Name)
				a.Release(newcomer)
			}
		})
	}
}

// BenchmarkClaimAgain repeats a claim that changes nothing.
func BenchmarkClaimAgain(b *testing.B) {
	a := alloc.New()
	a.SetPools([]alloc.Pool{pool(b, "p", "10.1.0.0/16", "fd00::/64")})
	for i := range 10_000 {
		claim(b, a, fmt.Sprint(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		claim(b, a, "5000")
	}
}

// BenchmarkClaimRetained claims the last address of a pool in many ranges, as one without .0 and
// .255 is, while other namespaces have retained many.
func BenchmarkClaimRetained(b *testing.B) {
	for _, retained := range []int{0, 128, 1024} {
		b.Run(fmt.Sprintf("retained=%d", retained), func(b *testing.B) {
			a := alloc.New()
			var ranges []string
			for i := range 256 {
				ranges = append(ranges, fmt.Sprintf("10.1.%d.1-10.1.%d.4", i, i))
			}
			a.SetPools([]alloc.Pool{pool(b, "p", ranges...)})
			for i := range 1023 {
				address := netip.AddrFrom4([4]byte{10, 1, byte(i / 4), byte(1 + i%4)})
				if i < retained {
					a.Reserve(address, retention("other"))
					continue
				}
				owner := alloc.Owner{Kind: "Service", Namespace: "b", Name: fmt.Sprint(i)}
				a.Adopt([]alloc.Holding{{Owner: owner, Addresses: []netip.Addr{address}}})
			}
			newcomer := alloc.Request{
				Owner:    alloc.Owner{Kind: "Service", Namespace: "b", Name: "newcomer"},
				Families: []alloc.Family{alloc.IPv4}, Pools: []string{"p"},
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Claim(newcomer); err != nil {
					b.Fatal(err)
				}
				a.Release(newcomer.Owner)
			}
		})
	}
}

func claim(b *testing.B, a *alloc.Allocator, name string) {
	_, err := a.Claim(alloc.Request{
		Owner:    alloc.Owner{Kind: "Service", Namespace: "b", Name: name},
		Families: []alloc.Family{alloc.IPv4, alloc.IPv6},
		Pools:    []string{"p"},
	})
	if err != nil {
		b.Fatal(err)
	}
}
