// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
)

// Health is how endpoints are probed in addition to their readiness.
type Health struct {
	// Given is set if the Service has a health-check annotation; otherwise the group's
	// check is used.
	Given bool
	// Check is nil for no probes.
	Check *lb.HealthCheck
}

// healthNone disables probes.
const healthNone = "none"

// Defaults of health checks in annotations and in Fairlead's kinds.
const (
	defaultInterval = 2 * time.Second
	defaultTimeout  = time.Second
	defaultRise     = 2
	defaultFall     = 3
	defaultPath     = "/"
)

// HealthCheck returns a check with its defaults; nil for nil. The error names the first invalid
// field.
func HealthCheck(c *v1alpha1.HealthCheck) (*lb.HealthCheck, error) {
	if c == nil {
		return nil, nil
	}
	var errs []lb.FieldError
	h := fields{errs: &errs}.healthCheck(c)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return h, nil
}

// healthCheck translates a check and sets its defaults.
func (f fields) healthCheck(c *v1alpha1.HealthCheck) *lb.HealthCheck {
	h := &lb.HealthCheck{
		Port: f.port("port", c.Port), Interval: defaultInterval,
		Rise: cmp.Or(int(c.Rise), defaultRise), Fall: cmp.Or(int(c.Fall), defaultFall),
		PanicThreshold: int(c.PanicThreshold), SlowStart: durationOf(c.SlowStart), Passive: c.Passive,
		Path: c.Path, Host: c.Host, Service: c.Service, Send: lb.Payload(c.Send), Expect: lb.Payload(c.Expect),
	}
	f.add("type", h.Type.UnmarshalText([]byte(c.Type)))
	f.word("initially", c.Initially, &h.Initially)
	if web := h.Type == lb.HealthHTTP || h.Type == lb.HealthHTTPS; web {
		h.Path = cmp.Or(h.Path, defaultPath)
	}
	f.word("method", c.Method, &h.Method)
	f.word("expectedCodes", c.ExpectedCodes, &h.Status)
	if c.Headers != nil {
		h.Headers = make(map[string]string, len(c.Headers))
		for name, value := range c.Headers {
			h.Headers[name] = string(value)
		}
	}
	if c.TLS != nil {
		h.TLS = &lb.HealthTLS{Verify: c.TLS.Verify, ServerName: c.TLS.ServerName, CA: c.TLS.CA}
	}
	if c.DNS != nil {
		h.DNS = &lb.DNSQuestion{Name: c.DNS.Name, Type: lb.RecordA, Answer: c.DNS.Answer}
		f.word("dns.type", c.DNS.Type, &h.DNS.Type)
		f.word("dns.rcode", c.DNS.Code, &h.DNS.Code)
	}
	if c.Interval != nil {
		h.Interval = c.Interval.Duration
	}
	h.Timeout = min(defaultTimeout, max(h.Interval, time.Nanosecond))
	if c.Timeout != nil {
		h.Timeout = c.Timeout.Duration
	}
	return h
}

// question returns the query of a dns check for records of a type, A by default.
func question(name, kind string) (*lb.DNSQuestion, error) {
	q := &lb.DNSQuestion{Name: name}
	return q, q.Type.UnmarshalText([]byte(cmp.Or(kind, lb.RecordA.String())))
}

// health reads the annotations of a health check. With an error in any of them none
// counts.
func (r *reader) health() Health {
	text, given := r.annotations[v1alpha1.AnnotationHealthCheck]
	before := len(r.errs)
	h := lb.HealthCheck{Interval: defaultInterval, Rise: defaultRise, Fall: defaultFall}
	if err := h.Type.UnmarshalText([]byte(text)); given && text != healthNone && err != nil {
		r.fail(v1alpha1.AnnotationHealthCheck, "unknown health check %q: want one of none, tcp, http, https, grpc, dns, udp, icmp", text)
		return Health{}
	}
	web := h.Type == lb.HealthHTTP || h.Type == lb.HealthHTTPS
	if web {
		h.Path = defaultPath
	}
	refine(r, v1alpha1.AnnotationHealthCheckMethod, web, &h.Method, method)
	refine(r, v1alpha1.AnnotationHealthCheckPath, web, &h.Path, path)
	refine(r, v1alpha1.AnnotationHealthCheckQuery, h.Type == lb.HealthDNS, &h.DNS, query)
	refine(r, v1alpha1.AnnotationHealthCheckSend, h.Type == lb.HealthUDP, &h.Send, payload)
	refine(r, v1alpha1.AnnotationHealthCheckExpect, h.Type == lb.HealthUDP, &h.Expect, payload)
	if _, given := r.annotations[v1alpha1.AnnotationHealthCheckQuery]; h.Type == lb.HealthDNS && !given {
		r.fail(v1alpha1.AnnotationHealthCheckQuery, "missing: a dns check needs a query")
	}
	refine(r, v1alpha1.AnnotationHealthCheckPort, h.Type != 0 && h.Type != lb.HealthICMP, &h.Port, port)
	refine(r, v1alpha1.AnnotationHealthCheckInterval, h.Type != 0, &h.Interval, interval)
	h.Timeout = min(defaultTimeout, h.Interval)
	switch {
	case !given || len(r.errs) > before:
		return Health{}
	case text == healthNone:
		return Health{Given: true}
	}
	return Health{Given: true, Check: &h}
}

// refine reads an annotation with a detail of the check, which is valid only for some types.
func refine[T any](r *reader, field string, fits bool, to *T, read func(string) (T, error)) {
	text, given := r.annotations[field]
	kind := r.annotations[v1alpha1.AnnotationHealthCheck]
	switch {
	case !given:
	case !fits && kind == "":
		r.fail(field, "only with %s", v1alpha1.AnnotationHealthCheck)
	case !fits:
		r.fail(field, "not with %s %q", v1alpha1.AnnotationHealthCheck, kind)
	default:
		var err error
		if *to, err = read(text); err != nil {
			r.fail(field, "%w", err)
		}
	}
}

func method(text string) (m lb.HTTPMethod, err error) {
	err = m.UnmarshalText([]byte(text))
	return m, err
}

// maxPath is equal to the limit in Fairlead's kinds.
const maxPath = 1024

func path(text string) (string, error) {
	unfit := func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }
	if !strings.HasPrefix(text, "/") || len(text) > maxPath || strings.ContainsFunc(text, unfit) {
		return "", fmt.Errorf("bad path %q: want one that begins with / and has no spaces", text)
	}
	return text, nil
}

func query(text string) (*lb.DNSQuestion, error) {
	name, kind, _ := strings.Cut(text, " ")
	if err := lb.CheckDNSName(name); err != nil {
		return nil, err
	}
	return question(name, kind)
}

func payload(text string) (p lb.Payload, err error) {
	p = lb.Payload(text)
	return p, p.Check()
}

func port(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("bad port %q: want 1 to 65535", text)
	}
	return uint16(n), nil
}

func interval(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("bad duration %q: want for example 500ms", text)
	}
	if d < lb.MinHealthInterval || d > lb.MaxHealthInterval {
		return 0, lb.OutOfRange(d, lb.MinHealthInterval, lb.MaxHealthInterval)
	}
	return d, nil
}
