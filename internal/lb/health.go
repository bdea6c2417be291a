// SPDX-License-Identifier: Apache-2.0

package lb

import "time"

// HealthType is the protocol of a health check.
type HealthType uint8

// The health checks. The zero value is none of them.
const (
	HealthTCP HealthType = iota + 1
	HealthHTTP
)

var healthWords = words{HealthTCP: "tcp", HealthHTTP: "http"}

// String returns "tcp" or "http".
func (t HealthType) String() string { return healthWords.text(uint8(t)) }

// MarshalText writes the type as String does.
func (t HealthType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText writes; any other text is an error.
func (t *HealthType) UnmarshalText(text []byte) error {
	v, err := healthWords.parse("health check", string(text))
	*t = HealthType(v)
	return err
}

// HealthCheck says how the backends of a service are probed.
type HealthCheck struct {
	Type HealthType `json:"type"`
	// Path is requested by HTTP checks; it begins with a slash.
	Path string `json:"path,omitempty"`
	// Interval is the time between two probes of one backend, Timeout how long
	// one probe may take; Timeout is at most Interval.
	Interval time.Duration `json:"interval"`
	Timeout  time.Duration `json:"timeout"`
	// Rise and Fall are how many probes in a row make a backend healthy or
	// unhealthy; both at least 1.
	Rise int `json:"rise"`
	Fall int `json:"fall"`
}
