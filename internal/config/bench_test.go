// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/config"
)

// BenchmarkParse reads services with 16 backends each: a reload has 50 ms for a
// hundred of them.
func BenchmarkParse(b *testing.B) {
	for _, services := range []int{100, 4096} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			text := manyServices(services, 16)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := config.Parse("f", text, limits()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// manyServices returns a configuration of that many services and backends of
// each.
func manyServices(services, backends int) string {
	var b strings.Builder
	b.WriteString("node: {name: lb1, interfaces: [eth0]}\nservices:\n")
	for i := range services {
		fmt.Fprintf(&b, "  - name: web%d\n    address: 10.1.%d.%d\n    port: 80\n    forward: l2dsr\n    backends:\n",
			i, i>>8, i&0xff)
		for j := range backends {
			fmt.Fprintf(&b, "      - {address: 10.0.%d.%d, port: 80, weight: 1}\n", j>>8, j&0xff)
		}
	}
	return b.String()
}
