// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"time"
)

// Tracking says which flows a data plane remembers (DESIGN.md §5.2).
type Tracking uint8

// The kinds of tracking. The zero value is the default.
const (
	// TrackingMinimal remembers the flows that a change of backends might move,
	// and no others.
	TrackingMinimal Tracking = iota
	// TrackingFull remembers every flow, as connection-tracking balancers do.
	TrackingFull
)

var trackingWords = words{TrackingMinimal: "minimal", TrackingFull: "full"}

// String returns "minimal" or "full".
func (t Tracking) String() string { return trackingWords.text(uint8(t)) }

// MarshalText writes the kind as String does.
func (t Tracking) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText writes; any other text is an error.
func (t *Tracking) UnmarshalText(text []byte) error {
	v, err := trackingWords.parse("tracking", string(text))
	*t = Tracking(v)
	return err
}

// Bounds of a service's times.
const (
	MinIdleTimeout = time.Second
	MaxIdleTimeout = 7 * 24 * time.Hour
	MaxLearn       = time.Minute
	// DefaultLearn is what sources give to UDP services that don't say.
	DefaultLearn = time.Second
)

// checkTracking finds what is wrong with how flows are remembered.
func (s *Service) checkTracking(f *findings) {
	f.add("tracking", trackingWords.check("tracking", uint8(s.Tracking)))
	if t := s.IdleTimeout; t != 0 && (t < MinIdleTimeout || t > MaxIdleTimeout) {
		f.add("idleTimeout", OutOfRange(t, MinIdleTimeout, MaxIdleTimeout))
	}
	switch {
	case s.Learn < 0 || s.Learn > MaxLearn:
		f.add("learn", OutOfRange(s.Learn, time.Duration(0), MaxLearn))
	case s.Learn > 0 && s.Protocol != UDP:
		f.add("learn", fmt.Errorf("only udp flows are learned, this service is %s", s.Protocol))
	}
}
