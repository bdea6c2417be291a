// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/balancer/plane"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/host/preflight"
)

// A configuration needs IPVS for the services that XDP can't serve.
func TestNeeds(t *testing.T) {
	const web = "  - {name: web, address: 192.0.2.10, port: 80, forward: nat, backends: [{address: 198.51.100.11}]}\n"
	const robin = "  - {name: robin, address: 192.0.2.11, port: 80, forward: nat, scheduler: rr, backends: [{address: 198.51.100.11}]}\n"
	for _, tt := range []struct {
		kind, services string
		want           preflight.Use
		schedulers     []string
	}{
		{"auto", web, preflight.Optional, nil},
		{"auto", web + robin, preflight.Partial, []string{"rr"}},
		{"ipvs", web + robin, preflight.Required, []string{"maglev", "rr"}},
		{"xdp", web, preflight.Unused, nil},
	} {
		text := "node: {name: lb1, interfaces: [eth0]}\ndataplane: {kind: " + tt.kind + ", hashSeed: 1}\nservices:\n" + tt.services
		conf, err := config.Parser(plane.Limits())("f", text)
		if err != nil {
			t.Fatal(err)
		}
		if needs := Needs(conf); needs.IPVS != tt.want || !slices.Equal(needs.Schedulers, tt.schedulers) || len(needs.VIPs) != len(conf.Services) {
			t.Errorf("%s: %+v", text, needs)
		}
	}
}
