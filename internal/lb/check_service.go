// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
)

// maxNameLength leaves room for a Kubernetes namespace, name and port.
const maxNameLength = 400

func checkName(name string) error {
	notPlain := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	switch {
	case name == "":
		return errors.New("no name")
	case len(name) > maxNameLength:
		return fmt.Errorf("%d bytes are too long: want at most %d", len(name), maxNameLength)
	case strings.ContainsFunc(name, notPlain):
		return fmt.Errorf("bad name %q: want printable characters without spaces", name)
	}
	return nil
}

func checkPort(port uint16) error {
	if port == 0 {
		return OutOfRange(port, 1, math.MaxUint16)
	}
	return nil
}

// Bounds of Service.AffinityTimeout. Kubernetes' own are 1s and 24h.
const (
	MinAffinityTimeout = time.Second
	MaxAffinityTimeout = 7 * 24 * time.Hour
)

func (s *Service) checkAffinityTimeout() error {
	switch t := s.AffinityTimeout; {
	case t == 0:
		return nil
	case s.Affinity != AffinityClient:
		return fmt.Errorf("only clients are remembered, and the affinity is %s: want client", s.Affinity)
	case t < MinAffinityTimeout || t > MaxAffinityTimeout:
		return OutOfRange(t, MinAffinityTimeout, MaxAffinityTimeout)
	}
	return nil
}

// checkMinHealthy lets a service without backends be: it is served to nobody
// and announced by nobody, which is how a deployment of no replicas looks.
func (s *Service) checkMinHealthy() error {
	switch n := len(s.Backends); {
	case s.MinHealthy < 1:
		return fmt.Errorf("%d is out of range: want at least 1", s.MinHealthy)
	case n > 0 && s.MinHealthy > n:
		return fmt.Errorf("%d is more than the service's %d backends", s.MinHealthy, n)
	}
	return nil
}
