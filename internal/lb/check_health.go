// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// check checks a health check.
func (h *HealthCheck) check(f *findings, path string, forward Forward) {
	unknown := healthWords.check("health check", uint8(h.Type))
	f.add(path+".type", unknown)
	h.checkTimes(f, path)
	f.add(path+".rise", checkCount(h.Rise))
	f.add(path+".fall", checkCount(h.Fall))
	f.add(path+".initially", initiallyWords.check("word", uint8(h.Initially)))
	f.add(path+".panicThreshold", checkRange(h.PanicThreshold, 0, 100))
	if h.Passive && forward != 0 && forward != NAT {
		f.add(path+".passive", fmt.Errorf("only with nat: with %s the balancer doesn't see responses", forward))
	}
	if unknown != nil {
		return // unknown type
	}
	h.checkSuperfluous(f, path)
	switch h.Type {
	case HealthHTTP, HealthHTTPS:
		h.checkHTTP(f, path)
	case HealthDNS:
		if h.DNS == nil {
			f.add(path+".dns", errors.New("missing: a dns check needs a query"))
		} else {
			h.DNS.check(f, path+".dns")
		}
	case HealthUDP:
		f.add(path+".send", h.Send.Check())
		f.add(path+".expect", h.Expect.Check())
	case HealthTCP, HealthGRPC, HealthICMP:
	}
	if h.TLS != nil && (h.Type == HealthHTTPS || h.Type == HealthGRPC) {
		h.TLS.check(f, path+".tls")
	}
}

func (h *HealthCheck) checkTimes(f *findings, path string) {
	f.add(path+".interval", checkRange(h.Interval, MinHealthInterval, MaxHealthInterval))
	if h.Timeout <= 0 {
		f.add(path+".timeout", fmt.Errorf("%s is out of range: want more than 0s", h.Timeout))
	}
	if h.Interval >= MinHealthInterval && h.Timeout > h.Interval {
		f.add(path+".timeout", fmt.Errorf("%s is longer than the interval of %s", h.Timeout, h.Interval))
	}
	f.add(path+".slowStart", checkRange(h.SlowStart, 0, MaxSlowStart))
}

// checkCount checks a number of probes in a row, or of backends.
func checkCount(n int) error {
	if n < 1 {
		return fmt.Errorf("%d is out of range: want at least 1", n)
	}
	return nil
}

// checkSuperfluous rejects fields of other types.
func (h *HealthCheck) checkSuperfluous(f *findings, path string) {
	web := []HealthType{HealthHTTP, HealthHTTPS}
	for _, field := range []struct {
		name  string
		given bool
		types []HealthType
	}{
		{"method", h.Method != MethodGET, web},
		{"path", h.Path != "", web},
		{"host", h.Host != "", web},
		{"headers", len(h.Headers) > 0, web},
		{"expectedCodes", len(h.Status) > 0, web},
		{"body", h.Body != "", web},
		{"tls", h.TLS != nil, []HealthType{HealthHTTPS, HealthGRPC}},
		{"service", h.Service != "", []HealthType{HealthGRPC}},
		{"dns", h.DNS != nil, []HealthType{HealthDNS}},
		{"send", h.Send != "", []HealthType{HealthUDP}},
		{"expect", h.Expect != "", []HealthType{HealthUDP}},
	} {
		if field.given && !slices.Contains(field.types, h.Type) {
			f.add(path+"."+field.name, fmt.Errorf("%s checks have no %s", h.Type, field.name))
		}
	}
	if h.Port != 0 && h.Type == HealthICMP {
		f.add(path+".port", errors.New("icmp checks have no port"))
	}
}

func (h *HealthCheck) checkHTTP(f *findings, path string) {
	f.add(path+".method", methodWords.check("method", uint8(h.Method)))
	if !strings.HasPrefix(h.Path, "/") || strings.ContainsFunc(h.Path, notVisible) {
		f.add(path+".path", fmt.Errorf("bad path %q: want one that begins with / and has no spaces", h.Path))
	}
	if strings.ContainsFunc(h.Host, notVisible) || strings.ContainsAny(h.Host, "/@") {
		f.add(path+".host", fmt.Errorf("bad host %q: want a name or an address, with or without port", h.Host))
	}
	f.add(path+".headers", checkHeaders(h.Headers))
	f.add(path+".expectedCodes", h.Status.check())
	if h.Body != "" && h.Method == MethodHEAD {
		f.add(path+".body", errors.New("responses to HEAD have none"))
	} else if _, err := regexp.Compile(h.Body); err != nil {
		f.add(path+".body", err)
	}
}

// notVisible reports characters that aren't allowed in a request line.
func notVisible(r rune) bool { return r <= ' ' || r == 0x7f }

// checkHeaders never repeats a value, which may be a secret.
func checkHeaders(headers map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch lower := strings.ToLower(name); {
		case name == "" || strings.ContainsFunc(name, notTokenRune):
			return fmt.Errorf("bad name %q: want letters, digits and hyphens", name)
		case lower == "host":
			return errors.New("use the field host")
		case slices.Contains([]string{"connection", "content-length", "transfer-encoding", "trailer"}, lower):
			return fmt.Errorf("%s is set by the check itself", name)
		case strings.ContainsFunc(headers[name], func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return fmt.Errorf("the value of %s has control characters", name)
		}
	}
	return nil
}

// notTokenRune reports characters that aren't allowed in a token (RFC 9110 §5.6.2).
func notTokenRune(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

func (t *HealthTLS) check(f *findings, path string) {
	if t.ServerName != "" {
		f.add(path+".serverName", CheckDNSName(t.ServerName))
	}
	switch {
	case t.CA == "":
	case !t.Verify:
		f.add(path+".ca", errors.New("only with verify: true"))
	case !x509.NewCertPool().AppendCertsFromPEM([]byte(t.CA)):
		f.add(path+".ca", errors.New("no certificate in PEM"))
	}
}
