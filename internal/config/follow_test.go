// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// Backends are a list, or a mapping with the place where they are followed.
func TestFollow(t *testing.T) {
	const file = "node: {name: lb1, interfaces: [eth0]}\nservices:\n  - {name: web, address: 10.1.1.1, port: 80, forward: %s, backends: %s}\n"
	vip := lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP}
	for backends, want := range map[string]source.Follow{
		"{service: web, port: http}":                               {Service: "web", Port: "http"},
		"{service: web, port: 8080}":                               {Service: "web", Port: "8080"},
		"{dns: _http._tcp.Example.com, type: srv}":                 {DNS: "_http._tcp.Example.com", SRV: true},
		"{dns: tasks.web, type: a}":                                {DNS: "tasks.web"},
		"\n    {dns: web.example.com., type: a,\n     port: 8080}": {DNS: "web.example.com.", Port: "8080", Number: 8080},
	} {
		c, err := Parse("f", fmt.Sprintf(file, "nat", backends), dataplanetest.Limits())
		if err != nil {
			t.Error(err)
			continue
		}
		if c.Followed[vip] != want || len(c.Services) != 1 || len(c.Services[0].Backends) != 0 || !c.Services[0].Ephemeral {
			t.Errorf("%s: %+v, %+v", backends, c.Followed, c.Services)
		}
	}
	for name, test := range map[string]struct{ forward, backends, want string }{
		"neither":           {"l2dsr", "{}", "f:3:72: services[0].backends: want a list, or either service or dns, where they are followed"},
		"both":              {"l2dsr", "{service: web, port: http, dns: a, type: a}", "f:3:72: services[0].backends: want a list, or either service or dns, where they are followed"},
		"misspelt":          {"l2dsr", "{servce: web, port: http}", "f:3:73: services[0].backends.servce: unknown field: did you mean \"service\"?"},
		"unknown":           {"l2dsr", "{service: web, port: http, namespace: shop}", "f:3:99: services[0].backends.namespace: unknown field: want one of service, port, dns, type"},
		"no port":           {"l2dsr", "{service: web}", "f:3:72: services[0].backends.port: missing: want the name or the number of a port of the Service's endpoints"},
		"port 0":            {"l2dsr", "{service: web, port: 0}", "f:3:93: services[0].backends.port: 0 is out of range: want 1 to 65535"},
		"other namespace":   {"l2dsr", "{service: shop/web, port: http}", "f:3:82: services[0].backends.service: bad name of a Service: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"},
		"type of a Service": {"l2dsr", "{service: web, port: http, type: srv}", "f:3:105: services[0].backends.type: only with dns"},
		"no type":           {"l2dsr", "{dns: a.example}", "f:3:72: services[0].backends.type: missing: want srv or a"},
		"bad type":          {"l2dsr", "{dns: a.example, type: aaaa}", "f:3:95: services[0].backends.type: unknown word \"aaaa\": want one of srv, a"},
		"bad name":          {"l2dsr", "{dns: a..example, type: a}", "f:3:78: services[0].backends.dns: bad name \"a..example\": want labels of 1 to 63 characters between dots"},
		"port of srv":       {"l2dsr", "{dns: a.example, type: srv, port: 80}", "f:3:106: services[0].backends.port: not with type srv: the records have ports"},
		"port's name":       {"nat", "{dns: a.example, type: a, port: http}", "f:3:102: services[0].backends.port: have the text \"http\": want a whole number"},
		"other port":        {"l2dsr", "{dns: a.example, type: a, port: 8080}", "f:3:104: services[0].backends.port: 8080 differs from the service's port 80, which l2dsr doesn't translate"},
		"overlay":           {"vxlan", "{dns: a.example, type: a}", "f:3:72: services[0].backends: want a list: with vxlan each backend needs a tunnelEnd and a mac"},
		"mark":              {"nat, firewallMark: 1", "{dns: a.example, type: a}", "f:3:87: services[0].backends: want a list: not with firewallMark"},
		"twice":             {"l2dsr", "{dns: a.example, type: a, dns: b.example}", "f:3:98: services[0].backends.dns: already given on line 3"},
	} {
		_, err := Parse("f", fmt.Sprintf(file, test.forward, test.backends), dataplanetest.Limits())
		if err == nil || err.Error() != test.want {
			t.Errorf("%s:\ngot  %v\nwant %s", name, err, test.want)
		}
	}
}

// After any change of followed services the parser of parts has the same ones as Parse.
func TestFollowInParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	p := Parser(dataplanetest.Limits())
	all := []string{"[]", "[{address: 10.0.0.1}]", "{service: web, port: http}", "{service: api, port: 1}", "{dns: a.example, type: a}"}
	for range 200 {
		var b strings.Builder
		b.WriteString("node: {name: lb1, interfaces: [eth0]}\nservices:\n")
		for _, i := range r.Perm(6)[:1+r.IntN(5)] {
			fmt.Fprintf(&b, "  - {name: web%d, address: 10.1.0.%d, port: 80, forward: l2dsr, backends: %s}\n", i, i+1, all[r.IntN(len(all))])
		}
		compareParsers(t, p, b.String())
	}
	large := func(n int) string {
		var b strings.Builder
		b.WriteString("node: {name: lb1, interfaces: [eth0]}\nservices:\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {name: web%d, address: 10.1.%d.%d, port: 80, forward: l2dsr, backends: {service: web%d, port: http}}\n", i, i/200, i%200+1, i)
		}
		return b.String()
	}
	c, err := p("f", large(2000)) // of several parts
	if err != nil || len(c.Followed) != 2000 {
		t.Fatalf("%d followed: %v", len(c.Followed), err)
	}
	if names := slices.Collect(maps.Values(c.Followed)); slices.Contains(names, source.Follow{}) {
		t.Error("one isn't followed")
	}
	compareParsers(t, p, large(1999))
}
