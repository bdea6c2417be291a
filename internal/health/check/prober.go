// SPDX-License-Identifier: Apache-2.0

// Package check implements the protocols of health checks: TCP, HTTP, HTTPS, gRPC,
// DNS, UDP and ICMP. Package health decides when to probe and what follows, and calls
// it through health.Prober.
package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// prober speaks the protocol of one check. It may be used for many backends at
// the same time.
type prober interface {
	// probe sends one probe, until ctx ends, and returns why the answer isn't a healthy
	// one. An error that explain maps to health.ErrLocal says nothing about the backend.
	probe(ctx context.Context, path way) error
}

// New returns the prober of a check. A check that lb.Service.Check rejects gets one
// that always fails.
func New(check *lb.HealthCheck) health.Prober { return errorMapper{newProber(check)} }

// errorMapper is a prober whose errors are mapped to those of health.Prober.
type errorMapper struct{ prober }

func (m errorMapper) Probe(ctx context.Context, path health.Path) error {
	return explain(m.probe(ctx, way{path}))
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
		err = fmt.Errorf("%s checks aren't supported", check.Type)
	}
	if err != nil {
		return invalid{err}
	}
	return p
}

// invalid is the prober of a check that can't be made.
type invalid struct{ error }

func (u invalid) probe(context.Context, way) error { return u.error }

// isLocal reports whether a probe failed because this node lacks open files, memory,
// ports, an address or a privilege.
func isLocal(err error) bool {
	return slices.ContainsFunc([]error{
		unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EADDRNOTAVAIL, unix.EADDRINUSE, unix.EPERM, unix.EACCES,
	}, func(lack error) bool { return errors.Is(err, lack) })
}

// explain maps an error to those of health.Prober.
func explain(err error) error {
	var network net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, health.ErrLocal):
		return err
	case isLocal(err):
		return fmt.Errorf("%w: %w", health.ErrLocal, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, unix.ETIMEDOUT), errors.As(err, &network) && network.Timeout():
		return context.DeadlineExceeded
	case errors.Is(err, unix.ECONNREFUSED):
		return errors.New("connection refused")
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return errors.New("connection reset")
	case errors.Is(err, unix.EHOSTUNREACH):
		return health.NoResponse(errors.New("no route to host"))
	case errors.Is(err, unix.ENETUNREACH):
		return health.NoResponse(errors.New("network is unreachable"))
	}
	return err
}

// tcpProber opens a connection and closes it.
type tcpProber struct{}

func (tcpProber) probe(ctx context.Context, path way) error {
	conn, err := path.dialTCP(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

// udpProber sends one datagram.
type udpProber struct {
	send   []byte
	expect []byte // empty: anything, and silence
}

func newUDPProber(check *lb.HealthCheck) (*udpProber, error) {
	send, err := check.Send.Bytes()
	if err != nil {
		return nil, err
	}
	expect, err := check.Expect.Bytes()
	return &udpProber{send: send, expect: expect}, err
}

func (p *udpProber) probe(ctx context.Context, path way) error {
	conn, err := path.dialUDP(ctx)
	if err != nil {
		return err
	}
	err = exchange(ctx, conn, p.send, func(answer []byte) (bool, error) {
		if !bytes.Contains(answer, p.expect) {
			return true, errors.New("answer doesn't match")
		}
		return true, nil
	})
	if len(p.expect) == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // no ICMP error, so the port isn't known to be closed
	}
	return err
}
