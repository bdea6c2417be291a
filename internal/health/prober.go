// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"

	"fairlead.io/fairlead/internal/lb"
)

// prober speaks the protocol of one check. It may be used for many backends at
// the same time.
type prober interface {
	// probe asks once, until ctx ends, and says why the answer isn't a healthy
	// one. A localError says nothing about the backend.
	probe(ctx context.Context, path Path) error
}

// newProber returns what probes backends as a check says. Checks that no
// lb.Service.Check let pass get one that always fails.
func newProber(check *lb.HealthCheck) prober {
	var p prober
	var err error
	switch check.Type {
	case lb.HealthTCP:
		p = tcpProber{}
	case lb.HealthHTTP, lb.HealthHTTPS:
		p, err = newHTTPProber(check)
	case lb.HealthGRPC:
		p, err = newGRPCProber(check)
	case lb.HealthDNS:
		p, err = newDNSProber(check)
	case lb.HealthUDP:
		p, err = newUDPProber(check)
	case lb.HealthICMP:
		p = icmpProber{}
	default:
		err = fmt.Errorf("%s checks can't be done", check.Type)
	}
	if err != nil {
		return unsound{err}
	}
	return p
}

// unsound is the prober of a check that makes no sense.
type unsound struct{ error }

func (u unsound) probe(context.Context, Path) error { return u.error }
