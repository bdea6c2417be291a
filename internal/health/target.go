// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// targetKey determines the contents and the path of probes. Backends of several
// services with equal keys are one target.
type targetKey struct {
	// namespace is the services': no tenant's probes count for another one.
	namespace string
	// vip, segment and forward are zero in the mode NAT and for a monitor address: the way
	// there is the same for all services.
	vip     netip.Addr
	segment lb.Segment
	forward lb.Forward
	// backend has only the fields that determine its path. A monitor address is its address.
	backend lb.Backend
	port    uint16
	wire    string
}

// newTargetKey returns the key of a backend; wire is its check's WireKey.
func newTargetKey(svc *lb.Service, backend lb.Backend, wire string) targetKey {
	k := targetKey{namespace: svc.Namespace, port: cmp.Or(backend.MonitorPort, svc.Health.Port, backend.Port), wire: wire}
	if backend.MonitorAddress.IsValid() {
		k.backend.Address = backend.MonitorAddress
		return k
	}
	k.backend = lb.Backend{Address: backend.Address, TunnelEnd: backend.TunnelEnd, MAC: backend.MAC, Segment: backend.Segment}
	if !svc.Forward.Translates() {
		k.vip, k.segment, k.forward = svc.Address, svc.Segment, svc.Forward
	}
	return k
}

// Identity names a backend of a service and its check, for example "10.1.1.1:80/tcp
// 10.0.0.1:80 1f2e3d4c5b6a7988". It differs if anything does by which the backend is
// reached or probed, and is the same in another process. Of the check it has a digest,
// because headers may be secrets.
func Identity(svc *lb.Service, b lb.Backend) string {
	own := newTargetKey(svc, b, "")
	digest := sha256.Sum256(fmt.Appendf(nil, "%s %+v %d %s", svc.Forward, own.backend, own.port, svc.Health.WireKey()))
	return fmt.Sprintf("%s %s %x", svc.VIP, b.ID(), digest[:8])
}

// target is one backend, probed in one way.
type target struct {
	// timer begins the next probe, at due.
	timer   *time.Timer
	due     time.Time
	key     targetKey
	service *lb.Service // one of those that share it, which is still there
	backend lb.Backend
	check   *lb.HealthCheck
	prober  Prober
	// members are the backends of services that hang on it; none once it is not
	// wanted any more.
	members []*member
	// path is open if release is not nil, through a service and its backend. All four
	// belong to the probe while one is in flight.
	path    Path
	release func()
	through *lb.Service
	to      lb.Backend
	// inFlight says that its probe has begun, or waits for tenant's turn.
	inFlight bool
	tenant   *tenant
	// fastProbes is how many of the next probes follow at short intervals if they fail,
	// because of the hint at the time hinted.
	fastProbes int
	hinted     time.Time
}

// open opens the way to the backend, if it is not open already.
func (t *target) open(paths Paths) error {
	if t.release != nil {
		return nil
	}
	if t.to.MonitorAddress.IsValid() {
		paths = DirectPaths{}
	}
	path, release, err := paths.Open(t.through, t.to, t.key.port)
	if err != nil {
		return NoResponse(fmt.Errorf("can't be reached: %w", err))
	}
	t.path, t.release = path, release
	return nil
}

// pathStale reports whether the target's path leads through a service that does not
// share the target any more.
func (t *target) pathStale() bool {
	return t.release != nil && !slices.ContainsFunc(t.members, func(b *member) bool { return b.vip == t.through.VIP })
}

// next is when the probe after one that was due at t.due, and is over now, is
// due. A backend is not left in doubt for long.
func (t *target) next(failed bool, now time.Time) time.Time {
	spacing, from := jittered(t.check.Interval), t.due
	switch {
	case !failed:
		t.fastProbes = 0
	case t.fastProbes > 0 || slices.ContainsFunc(t.members, func(b *member) bool { return !b.Known }):
		t.fastProbes = max(0, t.fastProbes-1)
		spacing, from = min(spacing, max(t.check.Interval/20, lb.MinHealthInterval)), now
	}
	if due := from.Add(spacing); due.After(now) {
		return due
	}
	return now
}

// subject is a backend of one service.
type subject struct {
	vip     lb.VIP
	backend lb.BackendID
}

// member is the state of a subject.
type member struct {
	subject
	machine
	// growth lets the share grow in slow start.
	growth *time.Timer
	// target is nil once the member is removed.
	target  *target
	passive bool
	// changed says that it is among those that are to be reported.
	changed bool
}

func (b *member) verdict() Verdict {
	return Verdict{VIP: b.vip, Backend: b.backend, State: b.State}
}
