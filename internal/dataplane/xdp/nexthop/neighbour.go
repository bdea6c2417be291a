// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// neighbourKey names an entry of the kernel's neighbour tables.
type neighbourKey struct {
	index   int // the interface's
	address netip.Addr
}

// neighbour is what the kernel knows of a neighbour; the zero value stands for
// no entry.
type neighbour struct {
	state uint16 // NUD_*
	mac   lb.MAC
	// managed means that the kernel keeps the entry resolved by itself
	// (NTF_EXT_MANAGED, kernel 5.16).
	managed bool
	// learned means that another control plane owns the entry (NTF_EXT_LEARNED).
	learned bool
	// marked means that Fairlead has made the entry managed (NDA_PROTOCOL), in
	// this process or in an earlier one.
	marked bool
	// failed means that it has not answered since it was last usable.
	failed bool
}

// usable reports whether packets can be sent to the neighbour's MAC address. A
// stale one is as good as a reachable one until the kernel finds otherwise.
func (n neighbour) usable() bool {
	const known = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE |
		unix.NUD_PERMANENT | unix.NUD_NOARP
	return n.state&known != 0 && !n.mac.IsZero()
}

// foreign reports whether the entry is none of our business: probing would take
// away that it is permanent, or that somebody else looks after it.
func (n neighbour) foreign() bool {
	return n.state&(unix.NUD_PERMANENT|unix.NUD_NOARP) != 0 || n.learned
}

// How long to wait before a neighbour that the kernel doesn't keep resolved by
// itself is probed again. The first stands for an entry that vanished, or that
// an older kernel has given up; the second is the kernel's own default for
// managed entries (interval_probe_time_ms).
const (
	probeUnresolved = time.Second
	probeResolved   = 5 * time.Second
)

// watched is a neighbour that hops of followed targets depend on.
type watched struct {
	neighbour
	key   neighbourKey
	users map[*entry]struct{}
	// probed is when the kernel was last asked to resolve the neighbour, and
	// refused its answer if it refused.
	probed  time.Time
	refused error
}

// learn takes what the kernel knows now, and reports whether that makes another
// hop.
func (w *watched) learn(n neighbour) bool {
	before := w.neighbour
	n.failed = !n.usable() && (before.failed || n.state&unix.NUD_FAILED != 0)
	w.neighbour = n
	if before.managed && !n.managed {
		w.probed = time.Time{} // it vanished, or somebody took the flag: no wait
	}
	return before.usable() != n.usable() || before.mac != n.mac || before.failed != n.failed
}

// due reports whether the kernel has to be asked to resolve the neighbour.
func (w *watched) due(now time.Time) bool {
	if w.managed || w.foreign() {
		return false
	}
	wait := probeUnresolved
	if w.usable() {
		wait = probeResolved
	}
	return now.Sub(w.probed) >= wait
}
