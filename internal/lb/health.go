// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// HealthType is the protocol of a health check.
type HealthType uint8

// The health checks. The zero value is none of them.
const (
	// HealthTCP opens a connection and closes it.
	HealthTCP HealthType = iota + 1
	// HealthHTTP sends a request without content and checks the response.
	HealthHTTP
	// HealthHTTPS is HealthHTTP over TLS.
	HealthHTTPS
	// HealthGRPC calls grpc.health.v1.Health/Check.
	HealthGRPC
	// HealthDNS sends a query over UDP.
	HealthDNS
	// HealthUDP sends a datagram.
	HealthUDP
	// HealthICMP sends an echo request.
	HealthICMP
)

var healthWords = words{
	HealthTCP: "tcp", HealthHTTP: "http", HealthHTTPS: "https", HealthGRPC: "grpc",
	HealthDNS: "dns", HealthUDP: "udp", HealthICMP: "icmp",
}

// Protocol returns the transport protocol of probes, 0 for HealthICMP.
func (t HealthType) Protocol() Protocol {
	switch t {
	case HealthICMP:
		return 0
	case HealthDNS, HealthUDP:
		return UDP
	default:
		return TCP
	}
}

// String returns the type as in a configuration file.
func (t HealthType) String() string { return healthWords.text(uint8(t)) }

// MarshalText writes the type as String does.
func (t HealthType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses MarshalText's output; any other text is an error.
func (t *HealthType) UnmarshalText(text []byte) error {
	return healthWords.read("health check", string(text), (*uint8)(t))
}

// HTTPMethod is the method of the requests of HTTP and HTTPS checks.
type HTTPMethod uint8

// The methods. The zero value is the default.
const (
	MethodGET HTTPMethod = iota
	MethodHEAD
	MethodOPTIONS
)

var methodWords = words{MethodGET: "GET", MethodHEAD: "HEAD", MethodOPTIONS: "OPTIONS"}

// String returns for example "HEAD".
func (m HTTPMethod) String() string { return methodWords.text(uint8(m)) }

// MarshalText writes the method as String does.
func (m HTTPMethod) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses MarshalText's output; any other text is an error.
func (m *HTTPMethod) UnmarshalText(text []byte) error {
	return methodWords.read("method", string(text), (*uint8)(m))
}

// Bounds of a health check's times.
const (
	MinHealthInterval = 10 * time.Millisecond
	MaxHealthInterval = time.Hour
	MaxSlowStart      = time.Hour
)

// HealthCheck is how the backends of a service are probed. Fields of other types are empty.
type HealthCheck struct {
	Type HealthType `json:"type"`
	// Port is where backends are probed; 0 is each one's own port.
	Port uint16 `json:"port,omitzero"`
	// Interval is the time between two probes of one backend, Timeout how long
	// one probe may take; Timeout is at most Interval.
	Interval time.Duration `json:"interval"`
	Timeout  time.Duration `json:"timeout"`
	// Rise and Fall are the numbers of consecutive probes that make a backend healthy or
	// unhealthy; at least 1. The first success decides alone.
	Rise int `json:"rise"`
	Fall int `json:"fall"`
	// Initially is the state of a backend until the first success, or so many failures.
	Initially Initially `json:"initially"`
	// PanicThreshold is a percentage of the service's backends: while fewer are healthy, health
	// is ignored. 0 disables it.
	PanicThreshold int `json:"panicThreshold,omitzero"`
	// SlowStart is how long a backend that became healthy takes to get its full weight.
	SlowStart time.Duration `json:"slowStart,omitzero"`
	// Passive advances a backend's next probe when it refuses a connection; only in the mode
	// NAT, in which the balancer sees responses.
	Passive bool `json:"passive,omitempty"`

	// Method, Path, which begins with a slash, and Host of HTTP and HTTPS requests.
	// Without Host the probed address is used.
	Method HTTPMethod `json:"method,omitzero"`
	Path   string     `json:"path,omitempty"`
	Host   string     `json:"host,omitempty"`
	// Headers are sent by HTTP and HTTPS checks. Values may be secrets.
	Headers map[string]string `json:"headers,omitempty"`
	// Status are the codes of a healthy HTTP response; none is DefaultStatus.
	Status StatusSet `json:"expectedCodes,omitempty"`
	// Body is a regular expression (RE2) that has to match within the first 64 KiB of an HTTP
	// response's body; empty for any.
	Body string `json:"body,omitempty"`

	// TLS has the TLS settings of HTTPS and gRPC checks. Without it HTTPS verifies nothing, and
	// gRPC uses no TLS.
	TLS *HealthTLS `json:"tls,omitempty"`

	// Service is the service name of a gRPC check; empty is the server itself.
	Service string `json:"service,omitempty"`

	// DNS is the query of a DNS check.
	DNS *DNSQuestion `json:"dns,omitempty"`

	// Send is the datagram of a UDP check, Expect a part of a healthy response. Without
	// Expect any response is healthy, and so is none: only a closed port (ICMP) is a failure.
	Send   Payload `json:"send,omitempty"`
	Expect Payload `json:"expect,omitempty"`
}

// HealthTLS are the TLS settings of a check.
type HealthTLS struct {
	// Verify rejects servers without a valid certificate for ServerName.
	Verify bool `json:"verify,omitempty"`
	// ServerName is sent to the server (RFC 6066); empty is the check's Host, else the probed
	// address, which is not sent.
	ServerName string `json:"serverName,omitempty"`
	// CA has PEM certificates of the trusted authorities, with Verify; empty for the
	// system's.
	CA string `json:"ca,omitempty"`
}

// WireKey is equal for checks with equal probes and intervals.
func (h *HealthCheck) WireKey() string {
	wire := *h
	wire.Rise, wire.Fall, wire.Initially, wire.PanicThreshold, wire.SlowStart, wire.Passive = 0, 0, 0, 0, 0, false
	key, err := json.Marshal(wire)
	if err != nil {
		return "" // no field of it can't be written
	}
	return string(key)
}

// Initially is the state of backends until the first verdict on them.
type Initially uint8

// The initial states. The zero value is the default.
const (
	// InitiallyAuto is unhealthy for a backend added to a service of a running agent, so that a
	// dead one never gets a flow. All others are healthy, or as an earlier agent or check found:
	// neither a start of the agent nor a new check removes backends.
	InitiallyAuto Initially = iota
	// InitiallyHealthy and InitiallyUnhealthy make no such difference.
	InitiallyHealthy
	InitiallyUnhealthy
)

var initiallyWords = words{InitiallyAuto: "auto", InitiallyHealthy: "healthy", InitiallyUnhealthy: "unhealthy"}

// String returns "auto", "healthy" or "unhealthy".
func (i Initially) String() string { return initiallyWords.text(uint8(i)) }

// MarshalText writes the word as String does.
func (i Initially) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText parses MarshalText's output; any other text is an error.
func (i *Initially) UnmarshalText(text []byte) error {
	return initiallyWords.read("word", string(text), (*uint8)(i))
}

// Payload is the content of a datagram, with Go's escapes for bytes that aren't text: \n, \r,
// \t, \\, \x00 and so on.
type Payload string

// maxPayload fits into one packet on any network (RFC 8200 §5).
const maxPayload = 1200

// Bytes returns the content itself.
func (p Payload) Bytes() ([]byte, error) {
	var content []byte
	for rest := string(p); rest != ""; {
		r, multibyte, tail, err := strconv.UnquoteChar(rest, 0)
		if err != nil {
			return nil, fmt.Errorf(`bad escape in %q: want for example \n, \\ or \x00`, string(p))
		}
		if multibyte {
			content = utf8.AppendRune(content, r)
		} else {
			content = append(content, byte(r))
		}
		rest = tail
	}
	return content, nil
}

// Check returns why the content can't be sent.
func (p Payload) Check() error {
	content, err := p.Bytes()
	if err == nil && len(content) > maxPayload {
		err = fmt.Errorf("%d bytes are too many: want at most %d", len(content), maxPayload)
	}
	return err
}
