// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// writeHealth writes how the backends of a service are probed, as far as it is
// not by default. Certificates of authorities are left out: they are in files of
// their own.
func writeHealth(b *strings.Builder, h *lb.HealthCheck) {
	if h == nil {
		return
	}
	fmt.Fprintf(b, "    health:\n      type: %s\n", h.Type)
	write := func(field string, given bool, value any) {
		if given {
			fmt.Fprintf(b, "      %s: %v\n", field, value)
		}
	}
	number := func(field string, n int) { write(field, n != 0, n) }
	duration := func(field string, d time.Duration) { write(field, d != 0, d) }
	text := func(field, s string) { write(field, s != "", quote(s)) }
	number("port", int(h.Port))
	duration("interval", h.Interval)
	duration("timeout", h.Timeout)
	number("rise", h.Rise)
	number("fall", h.Fall)
	write("initially", h.Initially != lb.InitiallyAuto, h.Initially)
	number("panicThreshold", h.PanicThreshold)
	duration("slowStart", h.SlowStart)
	write("passive", h.Passive, h.Passive)
	text("path", h.Path)
	text("host", h.Host)
	write("headers", len(h.Headers) > 0, headersText(h.Headers))
	text("status", h.Status.String())
	text("body", h.Body)
	if h.TLS != nil {
		write("tls", true, tlsText(*h.TLS))
	}
	text("service", h.Service)
	if h.DNS != nil {
		write("dns", true, dnsText(*h.DNS))
	}
	text("send", string(h.Send))
	text("expect", string(h.Expect))
}

// quote writes text in YAML's single quotes, in which a backslash is one.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func headersText(headers map[string]string) string {
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		fields = append(fields, quote(name)+": "+quote(headers[name]))
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

func tlsText(t lb.HealthTLS) string {
	text := "verify: " + strconv.FormatBool(t.Verify)
	if t.ServerName != "" {
		text += ", serverName: " + quote(t.ServerName)
	}
	return "{" + text + "}"
}

func dnsText(q lb.DNSQuestion) string {
	text := fmt.Sprintf("name: %s, type: %s, rcode: %s", quote(q.Name), cmp.Or(q.Type, lb.RecordA), q.Code)
	if q.Answer != "" {
		text += ", answer: " + quote(q.Answer)
	}
	return "{" + text + "}"
}
