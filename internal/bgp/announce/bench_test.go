// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// BenchmarkDecide decides about 4,096 services, each at an address of its own.
func BenchmarkDecide(b *testing.B) {
	services := make([]lb.Service, 4096)
	vip := netip.MustParseAddr("10.1.0.0")
	for i := range services {
		services[i] = service(fmt.Sprintf("s%d", i), vip.String(), 80)
		vip = vip.Next()
	}
	s := newScene(b, services...)
	l := planner{prefixes: map[netip.Prefix]*record{}}
	for b.Loop() {
		plan := l.decide(time.Now(), &s.Input)
		if len(plan.Routes()) != len(services) {
			b.Fatal("not all are announced")
		}
	}
}
