// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/lb"
)

// withHealth is a configuration with that health check, on line 3.
func withHealth(check string) string {
	return "node: {name: lb1, interfaces: [eth0]}\nservices:\n" +
		"  - {name: web, address: 10.1.1.1, port: 80, forward: ipip, health: " + check + ", backends: [{address: 10.0.0.21}]}\n"
}

func TestHealth(t *testing.T) {
	https := httptest.NewTLSServer(nil)
	defer https.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw}))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte(ca), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		check string
		want  lb.HealthCheck
	}{
		"defaults":       {"{type: tcp}", lb.HealthCheck{Type: lb.HealthTCP}},
		"short interval": {"{type: tcp, interval: 200ms}", lb.HealthCheck{Type: lb.HealthTCP, Interval: 200 * time.Millisecond, Timeout: 200 * time.Millisecond}},
		"policies": {"{type: icmp, rise: 1, fall: 5, initially: unhealthy, panicThreshold: 40, slowStart: 1m}",
			lb.HealthCheck{Type: lb.HealthICMP, Rise: 1, Fall: 5, Initially: lb.InitiallyUnhealthy, PanicThreshold: 40, SlowStart: time.Minute}},
		"http": {`{type: http, port: 8080, host: a.example, headers: {X-A: b, x-c: "1"}, expectedCodes: "204", body: '^\d+$'}`, lb.HealthCheck{
			Type: lb.HealthHTTP, Port: 8080, Path: "/", Host: "a.example", Headers: map[string]string{"X-A": "b", "x-c": "1"},
			Status: lb.StatusSet{{Low: 204, High: 204}}, Body: `^\d+$`}},
		"https": {`{type: https, method: HEAD, path: /x, expectedCodes: "200-299,404", tls: {verify: true, serverName: a.example, ca: ca.pem}}`, lb.HealthCheck{
			Type: lb.HealthHTTPS, Method: lb.MethodHEAD, Path: "/x", Status: lb.StatusSet{{Low: 200, High: 299}, {Low: 404, High: 404}},
			TLS: &lb.HealthTLS{Verify: true, ServerName: "a.example", CA: ca}}},
		"grpc": {"{type: grpc, service: shop.Cart, tls: {}}", lb.HealthCheck{Type: lb.HealthGRPC, Service: "shop.Cart", TLS: &lb.HealthTLS{}}},
		"dns": {"{type: dns, dns: {name: a.example, rcode: nxdomain}}",
			lb.HealthCheck{Type: lb.HealthDNS, DNS: &lb.DNSQuestion{Name: "a.example", Type: lb.RecordA, Code: lb.NXDomain}}},
		"udp": {`{type: udp, send: 'a\n', expect: "\\x00"}`, lb.HealthCheck{Type: lb.HealthUDP, Send: `a\n`, Expect: `\x00`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			conf, err := config.Parse(filepath.Join(dir, "f"), withHealth(test.check), limits())
			if err != nil {
				t.Fatal(err)
			}
			want := test.want
			if want.Interval == 0 {
				want.Interval, want.Timeout = 2*time.Second, time.Second
			}
			if want.Rise == 0 {
				want.Rise, want.Fall = 2, 3
			}
			if diff := cmp.Diff(&want, conf.Services[0].Health); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestHealthErrors(t *testing.T) {
	const at = "f:3:%d: services[0].health%s"
	for name, test := range map[string]struct {
		check  string
		column int
		want   string
	}{
		"type":               {"{type: ftp}", 76, `.type: unknown health check "ftp": want one of tcp, http, https, grpc, dns, udp, icmp`},
		"no type":            {"{path: /}", 69, ".type: missing"},
		"unknown field":      {"{type: tcp, intervall: 2s}", 81, `.intervall: unknown field: did you mean "interval"?`},
		"interval":           {"{type: tcp, interval: 2}", 91, ".interval: have 2: want a time with its unit, such as 500ms or 2s (quote it if it is text)"},
		"unit":               {"{type: tcp, interval: 2d}", 91, `.interval: bad time "2d": want a time with its unit, such as 500ms or 2s`},
		"short":              {"{type: tcp, interval: 1ms}", 91, ".interval: 1ms is out of range: want 10ms to 1h0m0s"},
		"timeout":            {"{type: tcp, timeout: 3s}", 90, ".timeout: 3s is longer than the interval of 2s"},
		"timeout 0":          {"{type: tcp, timeout: 0s}", 90, ".timeout: 0s is out of range: want more than 0s"},
		"rise":               {"{type: tcp, rise: 0}", 87, ".rise: 0 is out of range: want 1 to 65535"},
		"panic":              {"{type: tcp, panicThreshold: 101}", 97, ".panicThreshold: 101 is out of range: want 0 to 100"},
		"passive":            {"{type: tcp, passive: true}", 90, ".passive: only with nat: with ipip the balancer doesn't see responses"},
		"superfluous":        {"{type: tcp, path: /}", 87, ".path: tcp checks have no path"},
		"method":             {"{type: http, method: POST}", 90, `.method: unknown method "POST": want one of GET, HEAD, OPTIONS`},
		"path":               {"{type: http, path: x}", 88, `.path: bad path "x": want one that begins with / and has no spaces`},
		"codes as a number":  {"{type: http, expectedCodes: 204}", 97, ".expectedCodes: have 204: want text (quote it if it is text)"},
		"renamed":            {"{type: http, status: 204}", 82, ".status: renamed: use expectedCodes, in quotes"},
		"codes":              {"{type: http, expectedCodes: '99'}", 97, `.expectedCodes: bad status "99": want codes of 100 to 599 such as 200-299,404`},
		"body":               {"{type: http, body: '('}", 88, ".body: error parsing regexp: missing closing ): `(`"},
		"headers":            {"{type: http, headers: [a]}", 91, ".headers: have a list: want a mapping"},
		"header":             {"{type: http, headers: {a: 1}}", 95, ".headers.a: have 1: want text (quote it if it is text)"},
		"ca without verify":  {"{type: https, tls: {ca: ca.go}}", 93, ".tls.ca: stat ca.go: no such file or directory"},
		"server name":        {"{type: https, tls: {serverName: a..b}}", 101, `.tls.serverName: bad name "a..b": want labels of 1 to 63 characters between dots`},
		"ca is not pem":      {"{type: https, tls: {verify: true, ca: health_test.go}}", 107, ".tls.ca: no certificate in PEM"},
		"ca is unused":       {"{type: https, tls: {ca: health_test.go}}", 93, ".tls.ca: only with verify: true"},
		"ca is a directory":  {"{type: https, tls: {verify: true, ca: .}}", 107, ".tls.ca: .: not a regular file"},
		"question":           {"{type: dns}", 69, ".dns: missing: a dns check needs a query"},
		"name":               {"{type: dns, dns: {type: A}}", 86, ".dns.name: missing"},
		"record":             {"{type: dns, dns: {name: a, type: ANY}}", 102, `.dns.type: unknown record type "ANY": want one of A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV`},
		"address of no kind": {"{type: dns, dns: {name: a, answer: b}}", 104, `.dns.answer: "b" is not an address that a record of type A holds`},
		"escape":             {`{type: udp, send: 'a\q'}`, 87, `.send: bad escape in "a\\q": want for example \n, \\ or \x00`},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, withHealth(test.check), fmt.Sprintf(at, test.column, test.want))
		})
	}
}

// A header's value may be a secret: errors don't quote it.
func TestErrorsOmitHeaderValues(t *testing.T) {
	_, err := config.Parse("f", withHealth(`{type: http, headers: {Authorization: "s3cret\r\nA: b", "a b": "s3cret"}}`), limits())
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
}
