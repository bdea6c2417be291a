// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"encoding/json"
	"time"
)

// HealthType is the protocol of a health check.
type HealthType uint8

// The health checks. The zero value is none of them.
const (
	// HealthTCP opens a connection and closes it.
	HealthTCP HealthType = iota + 1
	// HealthHTTP sends a GET request and judges the answer.
	HealthHTTP
	// HealthHTTPS is HealthHTTP over TLS.
	HealthHTTPS
	// HealthGRPC calls grpc.health.v1.Health/Check.
	HealthGRPC
	// HealthDNS asks a question over UDP.
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

// String returns the word that stands for the check in a configuration file.
func (t HealthType) String() string { return healthWords.text(uint8(t)) }

// MarshalText writes the type as String does.
func (t HealthType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText writes; any other text is an error.
func (t *HealthType) UnmarshalText(text []byte) error {
	v, err := healthWords.parse("health check", string(text))
	*t = HealthType(v)
	return err
}

// Bounds of a health check's times.
const (
	MinHealthInterval = 10 * time.Millisecond
	MaxHealthInterval = time.Hour
	MaxSlowStart      = time.Hour
)

// HealthCheck says how the backends of a service are probed. The fields of one
// type are empty in checks of the others.
type HealthCheck struct {
	Type HealthType `json:"type"`
	// Port is where backends are probed; 0 is each one's own port.
	Port uint16 `json:"port,omitzero"`
	// Interval is the time between two probes of one backend, Timeout how long
	// one probe may take; Timeout is at most Interval.
	Interval time.Duration `json:"interval"`
	Timeout  time.Duration `json:"timeout"`
	// Rise and Fall are how many probes in a row make a backend healthy or
	// unhealthy; both at least 1. The first probe of all decides alone.
	Rise int `json:"rise"`
	Fall int `json:"fall"`
	// Initially is how a backend counts until its first probe is over.
	Initially Initially `json:"initially"`
	// PanicThreshold is a percentage of the service's backends: while fewer are
	// healthy, health is ignored. 0 never ignores it.
	PanicThreshold int `json:"panicThreshold,omitzero"`
	// SlowStart is how long a backend that became healthy takes to get its whole
	// weight.
	SlowStart time.Duration `json:"slowStart,omitzero"`
	// Passive lets connections that a backend refuses bring its next probe
	// forward; only in the mode NAT, as only there the balancer sees answers.
	Passive bool `json:"passive,omitempty"`

	// Path, which begins with a slash, and Host are what HTTP and HTTPS checks
	// ask for. Without Host it is the address that is probed.
	Path string `json:"path,omitempty"`
	Host string `json:"host,omitempty"`
	// Headers are sent by HTTP and HTTPS checks. Values may be secrets.
	Headers map[string]string `json:"headers,omitempty"`
	// Status are the codes of a healthy HTTP answer; none is DefaultStatus.
	Status StatusSet `json:"status,omitempty"`
	// Body is a regular expression (RE2) that has to match somewhere in the first
	// 64 KiB of an HTTP answer's body; empty for any.
	Body string `json:"body,omitempty"`

	// TLS says how HTTPS and gRPC checks use TLS. HTTPS without it verifies
	// nothing, gRPC without it uses none.
	TLS *HealthTLS `json:"tls,omitempty"`

	// Service is the name that a gRPC check asks for; empty is the server itself.
	Service string `json:"service,omitempty"`

	// DNS is the question of a DNS check.
	DNS *DNSQuestion `json:"dns,omitempty"`

	// Send is the datagram of a UDP check, Expect what the answer has to contain.
	// Without Expect any answer will do, and silence too: only a port that is
	// closed (ICMP) is a failure.
	Send   Payload `json:"send,omitempty"`
	Expect Payload `json:"expect,omitempty"`
}

// HealthTLS says how a check uses TLS.
type HealthTLS struct {
	// Verify refuses servers without a certificate for ServerName.
	Verify bool `json:"verify,omitempty"`
	// ServerName is sent to the server (RFC 6066); empty is the check's Host, else
	// the address that is probed, which is not sent.
	ServerName string `json:"serverName,omitempty"`
	// CA are the PEM certificates of those who may sign the server's, with
	// Verify; empty are the machine's own.
	CA string `json:"ca,omitempty"`
}

// WireKey is equal for two checks if their probes are: if they send and expect
// the same, and as often.
func (h *HealthCheck) WireKey() string {
	wire := *h
	wire.Rise, wire.Fall, wire.Initially, wire.PanicThreshold, wire.SlowStart, wire.Passive = 0, 0, 0, 0, 0, false
	key, err := json.Marshal(wire)
	if err != nil {
		return "" // no field of it can't be written
	}
	return string(key)
}

// Initially is how backends count until their first probe is over.
type Initially uint8

// The ways of counting them. The zero value is the default.
const (
	// InitiallyAuto takes a backend that joins a running agent's service as
	// unhealthy: a dead one never gets a flow. All others count as healthy, or as
	// an earlier check said: a start of the agent, or a new check, takes nobody
	// out.
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

// UnmarshalText reads what MarshalText writes; any other text is an error.
func (i *Initially) UnmarshalText(text []byte) error {
	v, err := initiallyWords.parse("word", string(text))
	*i = Initially(v)
	return err
}
