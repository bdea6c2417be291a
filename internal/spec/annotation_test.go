// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
)

// service has annotations given as "name=value" without their prefix.
func service(settings ...string) *corev1.Service {
	svc := &corev1.Service{}
	svc.Annotations = map[string]string{}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		svc.Annotations["fairlead.io/"+name] = value
	}
	return svc
}

func compared(t *testing.T, want, got spec.Settings) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	addr := netip.MustParseAddr
	check := func(change func(*lb.HealthCheck)) spec.Health {
		h := &lb.HealthCheck{Type: lb.HealthTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
		change(h)
		return spec.Health{Given: true, Check: h}
	}
	for name, test := range map[string]struct {
		in   []string
		want spec.Settings
	}{
		"nothing":       {nil, spec.Settings{}},
		"address":       {[]string{"addresses=192.0.2.1"}, spec.Settings{Addresses: []netip.Addr{addr("192.0.2.1")}}},
		"both families": {[]string{"addresses=2001:db8::1, 192.0.2.1"}, spec.Settings{Addresses: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}}},
		"pool and key":  {[]string{"address-pool=office.eu", "sharing-key=a/b"}, spec.Settings{Pool: "office.eu", SharingKey: "a/b"}},
		"forward":       {[]string{"forward=l2dsr"}, spec.Settings{Forward: lb.L2DSR}},
		"limits":        {[]string{"new-flows=20000", "new-flows-per-source=50"}, spec.Settings{Port: lb.Service{Limits: lb.FlowLimits{NewFlows: 20000, NewFlowsPerSource: 50}}}},
		"scheduler": {[]string{"scheduler=wlc", "max-connections=2147483647", "firewall-mark=4294967295"},
			spec.Settings{Port: lb.Service{Scheduler: lb.SchedulerWLC, FirewallMark: 1<<32 - 1}, MaxConnections: 1<<31 - 1}},
		"no health check": {[]string{"health-check=none"}, spec.Settings{Health: spec.Health{Given: true}}},
		"tcp":             {[]string{"health-check=tcp"}, spec.Settings{Health: check(func(*lb.HealthCheck) {})}},
		"http": {[]string{"health-check=http", "health-check-method=HEAD", "health-check-path=/ok?a=b", "health-check-port=8081", "health-check-interval=500ms"},
			spec.Settings{Health: check(func(h *lb.HealthCheck) {
				h.Type, h.Method, h.Path, h.Port, h.Interval, h.Timeout = lb.HealthHTTP, lb.MethodHEAD, "/ok?a=b", 8081, time.Second/2, time.Second/2
			})}},
		"https": {[]string{"health-check=https"}, spec.Settings{Health: check(func(h *lb.HealthCheck) { h.Type, h.Path = lb.HealthHTTPS, "/" })}},
		"dns": {[]string{"health-check=dns", "health-check-query=a.example"}, spec.Settings{Health: check(func(h *lb.HealthCheck) {
			h.Type, h.DNS = lb.HealthDNS, &lb.DNSQuestion{Name: "a.example", Type: lb.RecordA}
		})}},
		"dns of a type": {[]string{"health-check=dns", "health-check-query=a.example AAAA", "health-check-port=53"},
			spec.Settings{Health: check(func(h *lb.HealthCheck) {
				h.Type, h.DNS, h.Port = lb.HealthDNS, &lb.DNSQuestion{Name: "a.example", Type: lb.RecordAAAA}, 53
			})}},
		"udp": {[]string{"health-check=udp"}, spec.Settings{Health: check(func(h *lb.HealthCheck) { h.Type = lb.HealthUDP })}},
		"udp with an answer": {[]string{"health-check=udp", `health-check-send=a\n`, `health-check-expect=\xff`},
			spec.Settings{Health: check(func(h *lb.HealthCheck) { h.Type, h.Send, h.Expect = lb.HealthUDP, `a\n`, `\xff` })}},
		"icmp": {[]string{"health-check=icmp", "health-check-interval=5s"}, spec.Settings{Health: check(func(h *lb.HealthCheck) { h.Type, h.Interval = lb.HealthICMP, 5*time.Second })}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := spec.ParseAnnotations(service(test.in...))
			if err != nil {
				t.Error(err)
			}
			compared(t, test.want, got)
		})
	}
}

// An invalid annotation is named in the error and ignored; the others are applied.
func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		in   []string
		want string
	}{
		"address":          {[]string{"addresses=192.0.2"}, `fairlead.io/addresses: bad address "192.0.2": want IPv4 or IPv6, separated by commas`},
		"empty address":    {[]string{"addresses="}, `fairlead.io/addresses: bad address "": want IPv4 or IPv6, separated by commas`},
		"two of a family":  {[]string{"addresses=192.0.2.1,192.0.2.2"}, "fairlead.io/addresses: two addresses of one family: want at most one of each"},
		"multicast":        {[]string{"addresses=ff02::1"}, "fairlead.io/addresses: ff02::1 is a multicast address: want a unicast address"},
		"pool":             {[]string{"address-pool=A B"}, `fairlead.io/address-pool: bad name "A B": want lower-case letters, digits, dots and hyphens`},
		"key":              {[]string{"sharing-key=a b"}, "fairlead.io/sharing-key: bad key: want at most 253 printable characters without spaces"},
		"forward":          {[]string{"forward=vxlan"}, `fairlead.io/forward: unknown forwarding mode "vxlan": want one of nat, dsr, l2dsr, ipip, gue`},
		"check":            {[]string{"health-check=ftp"}, `fairlead.io/health-check: unknown health check "ftp": want one of none, tcp, http, https, grpc, dns, udp, icmp`},
		"empty check":      {[]string{"health-check="}, `fairlead.io/health-check: unknown health check "": want one of none, tcp, http, https, grpc, dns, udp, icmp`},
		"no query":         {[]string{"health-check=dns"}, "fairlead.io/health-check-query: missing: a dns check needs a query"},
		"query of tcp":     {[]string{"health-check=tcp", "health-check-query=a"}, `fairlead.io/health-check-query: not with fairlead.io/health-check "tcp"`},
		"query of no name": {[]string{"health-check=dns", "health-check-query= A"}, "fairlead.io/health-check-query: no name"},
		"query of no type": {[]string{"health-check=dns", "health-check-query=a ANY"}, `fairlead.io/health-check-query: unknown record type "ANY": want one of A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV`},
		"datagram of dns":  {[]string{"health-check=dns", "health-check-query=a", "health-check-send=a"}, `fairlead.io/health-check-send: not with fairlead.io/health-check "dns"`},
		"escape":           {[]string{"health-check=udp", `health-check-send=\`}, `fairlead.io/health-check-send: bad escape in "\\": want for example \n, \\ or \x00`},
		"long text":        {[]string{"health-check=udp", "health-check-expect=" + strings.Repeat("a", 1201)}, "fairlead.io/health-check-expect: 1201 bytes are too many: want at most 1200"},
		"path":             {[]string{"health-check=http", "health-check-path=x"}, `fairlead.io/health-check-path: bad path "x": want one that begins with / and has no spaces`},
		"method":           {[]string{"health-check=http", "health-check-method=POST"}, `fairlead.io/health-check-method: unknown method "POST": want one of GET, HEAD, OPTIONS`},
		"method of grpc":   {[]string{"health-check=grpc", "health-check-method=GET"}, `fairlead.io/health-check-method: not with fairlead.io/health-check "grpc"`},
		"path of tcp":      {[]string{"health-check=tcp", "health-check-path=/"}, `fairlead.io/health-check-path: not with fairlead.io/health-check "tcp"`},
		"port of icmp":     {[]string{"health-check=icmp", "health-check-port=1"}, `fairlead.io/health-check-port: not with fairlead.io/health-check "icmp"`},
		"port":             {[]string{"health-check=tcp", "health-check-port=0"}, `fairlead.io/health-check-port: bad port "0": want 1 to 65535`},
		"interval":         {[]string{"health-check=tcp", "health-check-interval=1"}, `fairlead.io/health-check-interval: bad duration "1": want for example 500ms`},
		"short interval":   {[]string{"health-check=tcp", "health-check-interval=1ms"}, "fairlead.io/health-check-interval: 1ms is out of range: want 10ms to 1h0m0s"},
		"interval of none": {[]string{"health-check=none", "health-check-interval=1s"}, `fairlead.io/health-check-interval: not with fairlead.io/health-check "none"`},
		"limit":            {[]string{"new-flows=0"}, `fairlead.io/new-flows: bad number "0": want 1 to 10000000`},
		"limit of sources": {[]string{"new-flows-per-source=1e3"}, `fairlead.io/new-flows-per-source: bad number "1e3": want 1 to 10000000`},
		"scheduler":        {[]string{"scheduler=mh"}, `fairlead.io/scheduler: unknown scheduler "mh": want one of maglev, rr, wrr, lc, wlc, sh`},
		"connections":      {[]string{"max-connections=2147483648"}, `fairlead.io/max-connections: bad number "2147483648": want 1 to 2147483647`},
		"mark":             {[]string{"firewall-mark=0x10"}, `fairlead.io/firewall-mark: bad number "0x10": want 1 to 4294967295`},
		"no mark":          {[]string{"firewall-mark=0"}, `fairlead.io/firewall-mark: bad number "0": want 1 to 4294967295`},
		"interval alone":   {[]string{"health-check-interval=1s"}, "fairlead.io/health-check-interval: only with fairlead.io/health-check"},
	} {
		t.Run(name, func(t *testing.T) {
			want := spec.Settings{Pool: "g"} // the other annotation is read
			if name == "pool" {
				want.Pool = ""
			} else {
				test.in = append(test.in, "address-pool=g")
			}
			got, err := spec.ParseAnnotations(service(test.in...))
			if err == nil || err.Error() != test.want {
				t.Errorf("error %v, want %s", err, test.want)
			}
			compared(t, want, got)
		})
	}
}

// The annotation goes before the deprecated field.
func TestLoadBalancerIP(t *testing.T) {
	svc := service()
	svc.Spec.LoadBalancerIP = "192.0.2.7"
	got, err := spec.ParseAnnotations(svc)
	if err != nil || len(got.Addresses) != 1 || got.Addresses[0].String() != "192.0.2.7" {
		t.Errorf("addresses %v, error %v", got.Addresses, err)
	}
	svc.Annotations["fairlead.io/addresses"] = "192.0.2.8"
	if got, _ := spec.ParseAnnotations(svc); got.Addresses[0].String() != "192.0.2.8" {
		t.Errorf("addresses %v", got.Addresses)
	}
	svc = service()
	svc.Spec.LoadBalancerIP = "here"
	if _, err := spec.ParseAnnotations(svc); err == nil || !strings.HasPrefix(err.Error(), "spec.loadBalancerIP: ") {
		t.Errorf("error %v", err)
	}
}

// Any annotations give valid settings.
func FuzzParse(f *testing.F) {
	f.Add("192.0.2.1,2001:db8::1", "nat", "http", "/x", "80", "1s", "health-check-query=a")
	f.Add("", "", "dns", "", "53", "1s", "health-check-query=a.example AAAA")
	f.Add("", "", "udp", "", "53", "1s", `health-check-send=\xff`)
	for _, detail := range []string{
		"address-pool=main", "address-pool=-", "sharing-key=a", "sharing-key= ", "scheduler=lc", "scheduler=x",
		"max-connections=9", "firewall-mark=-1", "health-check-query=", "health-check-query=a b c",
	} {
		f.Add("192.0.2.1,192.0.2.1", "x", "grpc", "x", "x", "1", detail)
		f.Add("192.0.2.1/32", "", "", "/", "1", "1s", detail)
	}
	f.Fuzz(func(t *testing.T, addresses, forward, kind, path, port, interval, detail string) {
		got, _ := spec.ParseAnnotations(service("addresses="+addresses, "forward="+forward, "health-check="+kind,
			"health-check-path="+path, "health-check-port="+port, "health-check-interval="+interval, detail))
		svc := lb.Service{
			Name: "x", VIP: lb.VIP{Address: netip.MustParseAddr("192.0.2.9"), Port: 80, Protocol: lb.TCP},
			Forward: lb.NAT, MinHealthy: 1, Health: got.Health.Check,
		}
		if wrong := svc.Check(); len(wrong) > 0 {
			t.Errorf("unsound: %v", wrong)
		}
		for _, a := range got.Addresses {
			if err := lb.CheckAddress(a); err != nil {
				t.Error(err)
			}
		}
	})
}
