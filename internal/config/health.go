// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/internal/lb"
)

const (
	defaultHealthInterval = 2 * time.Second
	defaultHealthTimeout  = time.Second
)

// health reads a health check. Whether its fields match its type is checked by lb.
func health(v value, h *lb.HealthCheck) {
	*h = lb.HealthCheck{Interval: defaultHealthInterval, Rise: 2, Fall: 3}
	v.readFields(
		required("type", &h.Type, textUnmarshaler),
		optional("port", &h.Port, port),
		optional("interval", &h.Interval, duration),
		optional("timeout", &h.Timeout, duration),
		optional("rise", &h.Rise, number[int](1, math.MaxUint16)),
		optional("fall", &h.Fall, number[int](1, math.MaxUint16)),
		optional("initially", &h.Initially, textUnmarshaler),
		optional("panicThreshold", &h.PanicThreshold, number[int](0, 100)),
		optional("slowStart", &h.SlowStart, duration),
		optional("passive", &h.Passive, flag),
		optional("method", &h.Method, textUnmarshaler),
		optional("path", &h.Path, text),
		optional("host", &h.Host, text),
		optional("headers", &h.Headers, texts),
		optional("status", &h.Status, status),
		optional("body", &h.Body, text),
		optional("tls", &h.TLS, pointer(healthTLS)),
		optional("service", &h.Service, text),
		optional("dns", &h.DNS, pointer(dnsQuestion)),
		optional("send", &h.Send, text),
		optional("expect", &h.Expect, text),
	)
	if web := h.Type == lb.HealthHTTP || h.Type == lb.HealthHTTPS; web && h.Path == "" {
		h.Path = "/"
	}
	if !v.has("timeout") {
		h.Timeout = min(defaultHealthTimeout, h.Interval)
	}
}

// healthTLS reads the TLS settings of a check, and the content of the CA file.
func healthTLS(v value, t *lb.HealthTLS) {
	v.readFields(
		optional("verify", &t.Verify, flag),
		optional("serverName", &t.ServerName, text),
		optional("ca", &t.CA, func(v value, to *string) {
			var path string
			if text(v, &path); path != "" {
				*to = v.readContent(path)
			}
		}),
	)
}

// resolve makes a path absolute; it is relative to the configuration file's folder.
func (v value) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(v.file), path)
}

// readContent returns the content of a file.
func (v value) readContent(path string) string {
	path = v.resolve(path)
	content, err := readFile(path)
	switch {
	case err != nil:
		v.failf("%w", err)
	case len(content) == 0:
		v.failf("%s: the file is empty", path)
	}
	return content
}

// dnsQuestion reads the query of a DNS check and the expected answer.
func dnsQuestion(v value, q *lb.DNSQuestion) {
	q.Type = lb.RecordA
	v.readFields(
		required("name", &q.Name, text),
		optional("type", &q.Type, textUnmarshaler),
		optional("rcode", &q.Code, textUnmarshaler),
		optional("answer", &q.Answer, text),
	)
}

// status reads a set of HTTP status codes; a single code is a number in YAML.
func status(v value, to *lb.StatusSet) {
	if n, ok := v.node.(*ast.IntegerNode); ok {
		v.check(to.UnmarshalText([]byte(n.GetToken().Value)))
		return
	}
	textUnmarshaler(v, to)
}

// texts reads a mapping with arbitrary keys and text values.
func texts(v value, to *map[string]string) {
	mapping, ok := v.node.(*ast.MappingNode)
	if !ok {
		v.unexpected("a mapping")
		return
	}
	*to = make(map[string]string, len(mapping.Values))
	for _, entry := range mapping.Values {
		key := entry.Key.GetToken().Value
		at := value{decoder: v.decoder, path: v.pathOf(key), node: entry.Value}
		if _, twice := (*to)[key]; twice {
			at.failf("already given")
			continue
		}
		var s string
		text(at, &s)
		(*to)[key] = s
	}
}
