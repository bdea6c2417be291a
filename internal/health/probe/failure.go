// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/health"
)

// localError is a probe that could not be made, for want of something on this
// node. It says nothing about the backend.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// isLocal reports whether a probe failed for want of something on this node:
// open files, memory, ports, an address, a right.
func isLocal(err error) bool {
	if _, ok := errors.AsType[localError](err); ok {
		return true
	}
	for _, lack := range []error{
		unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EADDRNOTAVAIL, unix.EADDRINUSE, unix.EPERM, unix.EACCES,
	} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

// explain puts an error into the words of health.Prober.
func explain(err error) error {
	var network net.Error
	switch {
	case err == nil:
		return nil
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
		return health.SilenceOf(errors.New("no route to host"))
	case errors.Is(err, unix.ENETUNREACH):
		return health.SilenceOf(errors.New("network is unreachable"))
	}
	return err
}
