// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/config"
)

func TestNAT(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want config.NAT
		err  string
	}{
		"default": {"{}", config.NAT{Ports: config.Ports{First: 1024, Last: 32767}}, ""},
		"all": {`{addresses: [10.0.0.1, "fd00::1"], ports: {first: 1, last: 65535}}`, config.NAT{
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
			Ports:     config.Ports{First: 1, Last: 65535},
		}, ""},
		"one end":    {"{ports: {last: 2000}}", config.NAT{Ports: config.Ports{First: 1024, Last: 2000}}, ""},
		"backwards":  {"{ports: {last: 5, first: 6}}", config.NAT{}, "f:1:38: node.nat.ports: the first port 6 is above the last port 5"},
		"tunnels":    {"{ports: {first: 6080, last: 6081}}", config.NAT{}, "f:1:38: node.nat.ports: 6080-6081: want a port of no tunnel, as those of VXLAN (4789), GUE (6080) and Geneve (6081) aren't used"},
		"no tunnel":  {"{ports: {first: 6080, last: 6082}}", config.NAT{Ports: config.Ports{First: 6080, Last: 6082}}, ""},
		"port 0":     {"{ports: {first: 0}}", config.NAT{}, "f:1:46: node.nat.ports.first: 0 is out of range: want 1 to 65535"},
		"twice":      {"{addresses: [10.0.0.1, 10.0.0.1]}", config.NAT{}, "f:1:53: node.nat.addresses[1]: 10.0.0.1 is given twice"},
		"loopback":   {"{addresses: [127.0.0.1]}", config.NAT{}, "f:1:43: node.nat.addresses[0]: 127.0.0.1 is a loopback address: want one that others can reach"},
		"misspelt":   {"{address: 10.0.0.1}", config.NAT{}, `f:1:31: node.nat.address: unknown field: did you mean "addresses"?`},
		"no mapping": {"[]", config.NAT{}, "f:1:30: node.nat: have a list: want a mapping"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := config.Parse("f", "node: {interfaces: [a], nat: "+c.text+"}\nservices: []\n", limits())
			if c.err != "" || err != nil {
				if err == nil || err.Error() != c.err {
					t.Fatalf("error %v, want %s", err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got.Node.NAT, equateAddresses()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The table has room for so many addresses of each family.
func TestNATAddresses(t *testing.T) {
	parse := func(addresses ...string) error {
		_, err := config.Parse("f", "node: {interfaces: [a], nat: {addresses: ["+strings.Join(addresses, ", ")+"]}}\nservices: []\n", limits())
		return err
	}
	var many []string
	four, six := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for range config.MaxNATAddresses {
		many = append(many, four.String(), `"`+six.String()+`"`)
		four, six = four.Next(), six.Next()
	}
	if err := parse(many...); err != nil {
		t.Error(err)
	}
	if err := parse(append(many, four.String())...); err == nil || !strings.HasSuffix(err.Error(), "65 addresses of one family are too many: want at most 64") {
		t.Errorf("error %v", err)
	}
}
