// SPDX-License-Identifier: Apache-2.0

// Package health probes the backends of services and reports verdicts, which the store
// merges with the desired services. The agent runs it. A pure state machine decides
// whether a backend is healthy; package check implements the protocols.
package health

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Path is the path of a probe to a backend (docs/design/programs.md).
type Path struct {
	// Target is the probe's destination: the VIP itself in the modes in which the
	// backend answers clients directly, else the backend.
	Target netip.AddrPort
	// Source is the address that the probe comes from; invalid if the kernel may
	// choose.
	Source netip.Addr
	// Mark is the socket mark (SO_MARK) that makes the kernel send the probe to
	// the one backend; 0: none is needed.
	Mark uint32
}

// Paths opens ways to backends without a monitor address. The data plane does, as only it
// knows how a packet gets there.
type Paths interface {
	// Open returns the way to a backend of a service for probes to the given port,
	// and follows the backend's next hop until release is called. An error means
	// that the backend can't be reached now, or with ErrPending in its chain that
	// it isn't known yet how, or with ErrLocal that this node can't do it; opening
	// is tried again then.
	Open(svc *lb.Service, backend lb.Backend, port uint16) (path Path, release func(), err error)
}

// ErrPending says that the way to a backend is not known yet: its service has
// just been configured. It says nothing about the backend.
var ErrPending = errors.New("not known yet")

// Prober implements the protocol of one check. It may be used for many backends at
// the same time.
type Prober interface {
	// Probe sends one probe, until ctx ends. Its error says in a few stable words why
	// the answer isn't a healthy one; it has context.Canceled in its chain, or
	// context.DeadlineExceeded, if there was none in time, is Unresponsive if there
	// can't be one, and has ErrLocal in its chain if it says nothing about the backend.
	Probe(ctx context.Context, path Path) error
}

// Unresponsive is why nothing comes back from a backend, not even a refusal: its
// connections are considered lost.
type Unresponsive struct{ error }

// NoResponse makes an error Unresponsive, with the same text.
func NoResponse(err error) error { return Unresponsive{err} }

// Unwrap returns the original error.
func (s Unresponsive) Unwrap() error { return s.error }

// ErrLocal says that a probe failed because this node lacks open files, memory, ports
// or a privilege. It says nothing about the backend.
var ErrLocal = errors.New("local failure")

// Verdict is a new state of one backend of one service.
type Verdict struct {
	VIP     lb.VIP
	Backend lb.BackendID
	State
}

// State is the health of a backend.
type State struct {
	// Checked says that the service has a health check. Known says that it has
	// come to a verdict, of which Healthy is the content; until then the backend
	// counts as Healthy says.
	Checked, Known, Healthy bool
	// Silent is set if the backend isn't healthy because its probes got no response.
	// One that refuses connections or answers with an error lives, and may still
	// serve those that it has.
	Silent bool
	// Share is the part of its weight that a backend in slow start gets, in
	// sixteenths: 1 to 16.
	Share int
	// Reason is how the last probe failed; empty if it did not.
	Reason string
	// Since is when Healthy last changed, Took how long the last probe took.
	Since time.Time
	Took  time.Duration
}

// DirectPaths probes backends at their monitor addresses, or else their own, as the kernel
// routes them: for data planes whose packets have no other way.
type DirectPaths struct{}

// Open never fails, and holds nothing.
func (DirectPaths) Open(_ *lb.Service, backend lb.Backend, port uint16) (Path, func(), error) {
	return Path{Target: netip.AddrPortFrom(cmp.Or(backend.MonitorAddress, backend.Address), port)}, func() {}, nil
}
