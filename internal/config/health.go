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
func health(to **lb.HealthCheck) reader {
	return func(v value) {
		h := &lb.HealthCheck{Interval: defaultHealthInterval, Rise: 2, Fall: 3}
		timeout := false
		v.readFields(
			required("type", textUnmarshaler(&h.Type)),
			optional("port", port(&h.Port)),
			optional("interval", duration(&h.Interval)),
			optional("timeout", func(v value) {
				timeout = true
				duration(&h.Timeout)(v)
			}),
			optional("rise", number(&h.Rise, 1, math.MaxUint16)),
			optional("fall", number(&h.Fall, 1, math.MaxUint16)),
			optional("initially", textUnmarshaler(&h.Initially)),
			optional("panicThreshold", number(&h.PanicThreshold, 0, 100)),
			optional("slowStart", duration(&h.SlowStart)),
			optional("passive", flag(&h.Passive)),
			optional("path", text(&h.Path)),
			optional("host", text(&h.Host)),
			optional("headers", texts(&h.Headers)),
			optional("status", status(&h.Status)),
			optional("body", text(&h.Body)),
			optional("tls", healthTLS(&h.TLS)),
			optional("service", text(&h.Service)),
			optional("dns", dnsQuestion(&h.DNS)),
			optional("send", text((*string)(&h.Send))),
			optional("expect", text((*string)(&h.Expect))),
		)
		if web := h.Type == lb.HealthHTTP || h.Type == lb.HealthHTTPS; web && h.Path == "" {
			h.Path = "/"
		}
		if !timeout {
			h.Timeout = min(defaultHealthTimeout, h.Interval)
		}
		*to = h
	}
}

// healthTLS reads the TLS settings of a check, and the content of the CA file.
func healthTLS(to **lb.HealthTLS) reader {
	return func(v value) {
		t := &lb.HealthTLS{}
		v.readFields(
			optional("verify", flag(&t.Verify)),
			optional("serverName", text(&t.ServerName)),
			optional("ca", func(v value) {
				var path string
				if text(&path)(v); path != "" {
					t.CA = v.readContent(path)
				}
			}),
		)
		*to = t
	}
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
	data, err := readFile(path)
	switch {
	case err != nil:
		v.failf("%w", err)
	case len(data) == 0:
		v.failf("%s: the file is empty", path)
	case len(data) > MaxSize:
		v.failf("%s: the file is too large: want at most %d bytes", path, MaxSize)
	}
	return string(data)
}

// dnsQuestion reads the query of a DNS check and the expected answer.
func dnsQuestion(to **lb.DNSQuestion) reader {
	return func(v value) {
		q := &lb.DNSQuestion{Type: lb.RecordA}
		v.readFields(
			required("name", text(&q.Name)),
			optional("type", textUnmarshaler(&q.Type)),
			optional("rcode", textUnmarshaler(&q.Code)),
			optional("answer", text(&q.Answer)),
		)
		*to = q
	}
}

// status reads a set of HTTP status codes; a single code is a number in YAML.
func status(to *lb.StatusSet) reader {
	return func(v value) {
		if n, ok := v.node.(*ast.IntegerNode); ok {
			v.check(to.UnmarshalText([]byte(n.GetToken().Value)))
			return
		}
		textUnmarshaler(to)(v)
	}
}

// texts reads a mapping with arbitrary keys and text values.
func texts(to *map[string]string) reader {
	return func(v value) {
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
			text(&s)(at)
			(*to)[key] = s
		}
	}
}
