// SPDX-License-Identifier: Apache-2.0

// Package probe speaks the protocols of health checks: TCP, HTTP, HTTPS, gRPC,
// DNS, UDP and ICMP.
//
// It is the edge of package health, which decides when to probe and what follows:
// sockets, and what the kernel says of them, are known here only.
package probe

import (
	"context"
	"fmt"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// prober speaks the protocol of one check. It may be used for many backends at
// the same time.
type prober interface {
	// probe asks once, until ctx ends, and says why the answer isn't a healthy
	// one. A localError says nothing about the backend.
	probe(ctx context.Context, path way) error
}

// New returns what probes backends as a check says. Checks that no
// lb.Service.Check let pass get one that always fails.
func New(check *lb.HealthCheck) health.Prober { return told{newProber(check)} }

// told is a prober whose errors are in the words of health.Prober.
type told struct{ prober }

func (t told) Probe(ctx context.Context, path health.Path) error {
	return explain(t.probe(ctx, way{path}))
}

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

func (u unsound) probe(context.Context, way) error { return u.error }
