// SPDX-License-Identifier: Apache-2.0

// Package check implements the protocols of health checks: TCP, HTTP, HTTPS, gRPC,
// DNS, UDP and ICMP. Package health schedules probes and evaluates their results; it
// calls this package through health.Prober.
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

// prober speaks the protocol of one check: it sends one probe, until ctx ends, and returns
// why the answer isn't a healthy one.
type prober func(ctx context.Context, path way) error

// Probe maps errors to health.Prober's.
func (p prober) Probe(ctx context.Context, path health.Path) error { return explain(p(ctx, way{path})) }

// New returns the prober of a check. A check that lb.Service.Check rejects gets one
// that always fails.
func New(check *lb.HealthCheck) health.Prober {
	p, err := newProber(check)
	if err != nil {
		return prober(func(context.Context, way) error { return err })
	}
	return p
}

func newProber(check *lb.HealthCheck) (prober, error) {
	switch check.Type {
	case lb.HealthTCP:
		return probeTCP, nil
	case lb.HealthHTTP, lb.HealthHTTPS:
		p, err := newHTTPProber(check)
		return p.probe, err
	case lb.HealthGRPC:
		p, err := newGRPCProber(check)
		return p.probe, err
	case lb.HealthDNS:
		p, err := newDNSProber(check)
		return p.probe, err
	case lb.HealthUDP:
		return newUDPProber(check)
	case lb.HealthICMP:
		return probeICMP, nil
	default:
		return nil, fmt.Errorf("%s checks aren't supported", check.Type)
	}
}

// isLocal reports whether a probe failed because this node lacks open files, memory,
// ports, an address or a privilege.
func isLocal(err error) bool {
	return slices.ContainsFunc([]error{
		unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EADDRNOTAVAIL, unix.EADDRINUSE, unix.EPERM, unix.EACCES,
	}, func(lack error) bool { return errors.Is(err, lack) }) && !isProhibited(err)
}

// isProhibited reports whether the network has answered that the destination is
// administratively prohibited, which ICMPv6 errors make EACCES (RFC 4443 §3.1), as opposed
// to a socket that this node doesn't allow.
func isProhibited(err error) bool {
	call, ok := errors.AsType[*os.SyscallError](err)
	return ok && errors.Is(err, unix.EACCES) && slices.Contains([]string{"connect", "read", "recvfrom", "recvmsg"}, call.Syscall)
}

// explain maps an error to one of health.Prober's.
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
	case isProhibited(err):
		return errors.New("administratively prohibited")
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

// probeTCP opens a connection and closes it.
func probeTCP(ctx context.Context, path way) error {
	conn, err := path.dialTCP(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

// newUDPProber sends one datagram. Without an expected text any answer is a healthy one,
// and so is silence.
func newUDPProber(check *lb.HealthCheck) (prober, error) {
	send, err := check.Send.Bytes()
	if err != nil {
		return nil, err
	}
	expect, err := check.Expect.Bytes()
	return func(ctx context.Context, path way) error {
		conn, err := path.dialUDP(ctx)
		if err != nil {
			return err
		}
		err = exchange(ctx, conn, send, func(answer []byte) (bool, error) {
			if !bytes.Contains(answer, expect) {
				return true, errors.New("answer doesn't match")
			}
			return true, nil
		})
		if len(expect) == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			return nil // no ICMP error, so the port isn't known to be closed
		}
		return err
	}, err
}
