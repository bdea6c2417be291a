// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"context"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/lb"
)

// BenchmarkPacket measures the program alone, in the kernel: one l2dsr service
// with 255 backends, one flow. L2 DSR leaves a packet that is balanced again,
// so it needn't be rebuilt between runs.
func BenchmarkPacket(b *testing.B) {
	for _, c := range []struct {
		name string
		svc  *lb.Service
		in   []byte
	}{
		{"ipv4", manyBackends(vip4, 255), flowPacket(web4, client4)},
		{"ipv6", manyBackends(vip6, 255), flowPacket(web6, client6)},
		{"not a vip", manyBackends(vip4, 255), flowPacket(web6, client6)},
		{"not ip", manyBackends(vip4, 255), withType(layers.EthernetTypeARP)},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := openTestPlane(b, testPins(b), newStaticHops())
			if _, err := p.Update(context.Background(), c.svc); err != nil {
				b.Fatal(err)
			}
			program, err := p.Program()
			if err != nil {
				b.Fatal(err)
			}
			const repeat = 1 << 20
			for b.Loop() {
				_, perPacket, err := program.Benchmark(c.in, repeat, nil)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(perPacket.Nanoseconds()), "ns/packet")
			}
		})
	}
}
