// SPDX-License-Identifier: Apache-2.0

package lb_test

import (
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// probing gives a valid service a check of that type, before a change.
func probing(t lb.HealthType, change func(h *lb.HealthCheck)) func(s *lb.Service) {
	return func(s *lb.Service) {
		s.Forward, s.Backends = lb.NAT, s.Backends[:1] // of the VIP's family
		s.Health = &lb.HealthCheck{Type: t, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
		change(s.Health)
	}
}

func TestCheckHealth(t *testing.T) {
	question := func(q lb.DNSQuestion) func(*lb.Service) {
		return probing(lb.HealthDNS, func(h *lb.HealthCheck) { h.DNS = &q })
	}
	testCheck(t, valid, map[string]checkTest{
		"everything": {probing(lb.HealthHTTPS, func(h *lb.HealthCheck) {
			h.Port, h.PanicThreshold, h.SlowStart, h.Passive, h.Initially = 8080, 50, time.Minute, true, lb.InitiallyUnhealthy
			h.Method, h.Path, h.Host, h.Headers = lb.MethodOPTIONS, "/healthz?full=1", "[fd00::1]:8080", map[string]string{"X-Probe": "a b"}
			h.Status, h.Body = lb.DefaultStatus(), "^ok"
			h.TLS = &lb.HealthTLS{Verify: true, ServerName: "example.com"}
		}), nil},
		"tcp":  {probing(lb.HealthTCP, func(*lb.HealthCheck) {}), nil},
		"grpc": {probing(lb.HealthGRPC, func(h *lb.HealthCheck) { h.Service, h.TLS = "shop.Cart", &lb.HealthTLS{} }), nil},
		"udp":  {probing(lb.HealthUDP, func(h *lb.HealthCheck) { h.Send, h.Expect = `ping\n`, `pong\x00` }), nil},
		"icmp": {probing(lb.HealthICMP, func(*lb.HealthCheck) {}), nil},
		"dns":  {question(lb.DNSQuestion{Name: "example.com.", Type: lb.RecordAAAA, Answer: "fd00::1"}), nil},
		"root": {question(lb.DNSQuestion{Name: ".", Type: lb.RecordNS}), nil},

		"type":     {probing(0, func(h *lb.HealthCheck) { h.Path = "/" }), []string{`health.type: unknown health check "unknown(0)": want one of tcp, http, https, grpc, dns, udp, icmp`}},
		"interval": {probing(lb.HealthTCP, func(h *lb.HealthCheck) { h.Interval = 0 }), []string{"health.interval: 0s is out of range: want 10ms to 1h0m0s"}},
		"timeout":  {probing(lb.HealthTCP, func(h *lb.HealthCheck) { h.Timeout = -1 }), []string{"health.timeout: -1ns is out of range: want more than 0s"}},
		"long timeout": {probing(lb.HealthTCP, func(h *lb.HealthCheck) { h.Timeout = time.Minute }),
			[]string{"health.timeout: 1m0s is longer than the interval of 2s"}},
		"counts": {probing(lb.HealthTCP, func(h *lb.HealthCheck) { h.Rise, h.Fall = 0, -1 }), []string{
			"health.rise: 0 is out of range: want at least 1",
			"health.fall: -1 is out of range: want at least 1"}},
		"policies": {probing(lb.HealthTCP, func(h *lb.HealthCheck) { h.PanicThreshold, h.SlowStart, h.Initially = 101, -1, 9 }), []string{
			"health.slowStart: -1ns is out of range: want 0s to 1h0m0s",
			`health.initially: unknown word "unknown(9)": want one of auto, healthy, unhealthy`,
			"health.panicThreshold: 101 is out of range: want 0 to 100"}},
		"passive": {func(s *lb.Service) { s.Health.Passive = true },
			[]string{"health.passive: only with nat: with l2dsr the balancer doesn't see responses"}},

		"tcp with everything": {probing(lb.HealthTCP, func(h *lb.HealthCheck) {
			h.Method, h.Path, h.Host, h.Headers, h.Status, h.Body = lb.MethodHEAD, "/", "a", map[string]string{"A": "b"}, lb.DefaultStatus(), "a"
			h.TLS, h.Service, h.DNS, h.Send, h.Expect = &lb.HealthTLS{}, "a", &lb.DNSQuestion{}, "a", "b"
		}), []string{
			"health.method: tcp checks have no method", "health.path: tcp checks have no path", "health.host: tcp checks have no host", "health.headers: tcp checks have no headers",
			"health.expectedCodes: tcp checks have no expectedCodes", "health.body: tcp checks have no body", "health.tls: tcp checks have no tls",
			"health.service: tcp checks have no service", "health.dns: tcp checks have no dns", "health.send: tcp checks have no send",
			"health.expect: tcp checks have no expect"}},
		"http with tls": {probing(lb.HealthHTTP, func(h *lb.HealthCheck) { h.Path, h.TLS = "/", &lb.HealthTLS{} }), []string{"health.tls: http checks have no tls"}},
		"icmp port":     {probing(lb.HealthICMP, func(h *lb.HealthCheck) { h.Port = 7 }), []string{"health.port: icmp checks have no port"}},

		"method":  {func(s *lb.Service) { s.Health.Method = 9 }, []string{`health.method: unknown method "unknown(9)": want one of GET, HEAD, OPTIONS`}},
		"head":    {func(s *lb.Service) { s.Health.Method = lb.MethodHEAD }, nil},
		"no body": {func(s *lb.Service) { s.Health.Method, s.Health.Body = lb.MethodHEAD, "a" }, []string{"health.body: responses to HEAD have none"}},
		"path":    {func(s *lb.Service) { s.Health.Path = "x" }, []string{`health.path: bad path "x": want one that begins with / and has no spaces`}},
		"space in the path": {func(s *lb.Service) { s.Health.Path = "/a b\r\n" },
			[]string{`health.path: bad path "/a b\r\n": want one that begins with / and has no spaces`}},
		"host": {func(s *lb.Service) { s.Health.Host = "a/b" }, []string{`health.host: bad host "a/b": want a name or an address, with or without port`}},
		"header name": {func(s *lb.Service) { s.Health.Headers = map[string]string{"a b": "secret"} },
			[]string{`health.headers: bad name "a b": want letters, digits and hyphens`}},
		"header value": {func(s *lb.Service) { s.Health.Headers = map[string]string{"A": "secret\r\nB: c"} },
			[]string{"health.headers: the value of A has control characters"}},
		"host as header": {func(s *lb.Service) { s.Health.Headers = map[string]string{"Host": "a"} }, []string{"health.headers: use the field host"}},
		"length":         {func(s *lb.Service) { s.Health.Headers = map[string]string{"Content-Length": "1"} }, []string{"health.headers: Content-Length is set by the check itself"}},
		"status": {func(s *lb.Service) { s.Health.Status = lb.StatusSet{{200, 199}} },
			[]string{"health.expectedCodes: 200-199 is not a range of status codes: want 100 to 599"}},
		"body": {func(s *lb.Service) { s.Health.Body = "(" }, []string{"health.body: error parsing regexp: missing closing ): `(`"}},

		"server name": {probing(lb.HealthGRPC, func(h *lb.HealthCheck) { h.TLS = &lb.HealthTLS{ServerName: "a..b"} }),
			[]string{`health.tls.serverName: bad name "a..b": want labels of 1 to 63 characters between dots`}},
		"idle ca": {probing(lb.HealthGRPC, func(h *lb.HealthCheck) { h.TLS = &lb.HealthTLS{CA: "a"} }),
			[]string{"health.tls.ca: only with verify: true"}},
		"bad ca": {probing(lb.HealthGRPC, func(h *lb.HealthCheck) { h.TLS = &lb.HealthTLS{Verify: true, CA: "a"} }), []string{"health.tls.ca: no certificate in PEM"}},

		"no question":    {probing(lb.HealthDNS, func(*lb.HealthCheck) {}), []string{"health.dns: missing: a dns check needs a query"}},
		"empty question": {question(lb.DNSQuestion{}), []string{"health.dns.name: no name", `health.dns.type: unknown record type "unknown(0)": want one of A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV`}},
		"family":         {question(lb.DNSQuestion{Name: "a", Type: lb.RecordA, Answer: "fd00::1"}), []string{`health.dns.answer: "fd00::1" is not an address that a record of type A holds`}},
		"answer of none": {question(lb.DNSQuestion{Name: "a", Type: lb.RecordA, Code: lb.NXDomain, Answer: "10.0.0.1"}), []string{"health.dns.answer: an answer of nxdomain has no records"}},
		"answer of mx":   {question(lb.DNSQuestion{Name: "a", Type: lb.RecordMX, Answer: "b"}), []string{"health.dns.answer: not compared for records of type MX: leave it out"}},
		"long name":      {question(lb.DNSQuestion{Name: strings.Repeat("a.", 127), Type: lb.RecordA}), nil},
		"longer name":    {question(lb.DNSQuestion{Name: strings.Repeat("a.", 128), Type: lb.RecordA}), []string{"health.dns.name: 255 characters are too many: want at most 253"}},

		"escape": {probing(lb.HealthUDP, func(h *lb.HealthCheck) { h.Send = `a\` }), []string{`health.send: bad escape in "a\\": want for example \n, \\ or \x00`}},
		"datagram": {probing(lb.HealthUDP, func(h *lb.HealthCheck) { h.Expect = lb.Payload(strings.Repeat("é", 601)) }),
			[]string{"health.expect: 1202 bytes are too many: want at most 1200"}},
	})
}

func TestStatusSet(t *testing.T) {
	for text, want := range map[string]string{
		"200": "200", "200-299,404": "200-299,404", "404, 200-299": "200-299,404", "200-210,205-220,221": "200-221",
		"": "bad", "99": "bad", "600": "bad", "300-200": "bad", "200-": "bad", "ok": "bad", "200,": "bad",
	} {
		var s lb.StatusSet
		if err := s.UnmarshalText([]byte(text)); err != nil {
			if want != "bad" || !strings.Contains(err.Error(), "want codes of 100 to 599") {
				t.Errorf("%q: %v", text, err)
			}
		} else if s.String() != want {
			t.Errorf("%q became %q, want %q", text, s, want)
		}
	}
	if s := lb.DefaultStatus(); s.Contains(199) || !s.Contains(200) || !s.Contains(399) || s.Contains(400) {
		t.Errorf("%s holds others", s)
	}
}

func TestPayload(t *testing.T) {
	for text, want := range map[lb.Payload]string{"": "", "ping": "ping", `a\nb\x00\xff\\"'`: "a\nb\x00\xff\\\"'", `é\u00e9`: "éé"} {
		if got, err := text.Bytes(); err != nil || string(got) != want {
			t.Errorf("%s became %q, %v, want %q", text, got, err, want)
		}
	}
}

// Two checks share probes if nothing that is sent, expected or timed differs.
func TestWireKey(t *testing.T) {
	same := *valid().Health
	same.Rise, same.Fall, same.Passive, same.SlowStart, same.PanicThreshold, same.Initially = 9, 9, true, 1, 1, lb.InitiallyHealthy
	if same.WireKey() != valid().Health.WireKey() {
		t.Error("what is done with results decides how backends are probed")
	}
	for name, change := range map[string]func(*lb.HealthCheck){
		"type":     func(h *lb.HealthCheck) { h.Type = lb.HealthHTTPS },
		"interval": func(h *lb.HealthCheck) { h.Interval++ },
		"timeout":  func(h *lb.HealthCheck) { h.Timeout++ },
		"port":     func(h *lb.HealthCheck) { h.Port++ },
		"method":   func(h *lb.HealthCheck) { h.Method = lb.MethodHEAD },
		"path":     func(h *lb.HealthCheck) { h.Path += "x" },
		"header":   func(h *lb.HealthCheck) { h.Headers = map[string]string{"A": "b"} },
		"status":   func(h *lb.HealthCheck) { h.Status = lb.StatusSet{{200, 200}} },
		"ca":       func(h *lb.HealthCheck) { h.TLS = &lb.HealthTLS{CA: "x"} },
		"question": func(h *lb.HealthCheck) { h.DNS = &lb.DNSQuestion{Name: "x"} },
		"datagram": func(h *lb.HealthCheck) { h.Send = `\xff` },
	} {
		other := *valid().Health
		change(&other)
		if other.WireKey() == same.WireKey() {
			t.Errorf("checks share probes though they differ in: %s", name)
		}
	}
}
