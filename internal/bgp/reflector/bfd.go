// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
)

// watch updates the peers that BFD watches: routers, and clients with a session. BFD
// distinguishes peers by address only: clients that share one share its session. The
// caller holds the lock.
func (r *Reflector) watch() {
	var watched []bfd.Peer
	seen := make(map[netip.Addr]bool)
	for _, router := range r.routers {
		if router.Peer.BFD != nil {
			watched = append(watched, router.bfd)
		}
	}
	for _, p := range r.clients {
		if p.BFD == nil || p.state != bgp.Established || seen[p.Address] {
			continue
		}
		seen[p.Address] = true
		watched = append(watched, p.bfd)
	}
	r.bfd.Set(watched)
	for _, p := range r.clients {
		if p.state == bgp.Established {
			r.bfd.Begin(p.Address)
		}
	}
}

// bfdChanged ends the session with a client that BFD found down, if BFD was up in that
// session: the BFD of some peers lives only as long as BGP. A peer that takes BFD down
// on purpose isn't down (RFC 5882 §3.2).
func (r *Reflector) bfdChanged(e bfd.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if router := r.routers[e.Peer]; router != nil {
		router.BFDChanged(e)
	}
	for _, p := range r.clients {
		if p.Address != e.Peer || p.BFD == nil || p.state != bgp.Established {
			continue
		}
		switch {
		case e.New == bgp.BFDUp:
			p.bfdUp = true
		case e.Old == bgp.BFDUp && e.New == bgp.BFDDown && !e.RemoteAdminDown && p.wasUp(e.At):
			r.drop(p, "BFD down: "+e.Diagnostic.String())
		}
	}
	r.watch()
}

// wasUp reports whether BFD was up in the session: it came up during it, or the
// session is older than the detection time.
func (p *client) wasUp(now time.Time) bool {
	return p.bfdUp || now.Sub(p.since) > p.BFD.Interval*time.Duration(p.BFD.Multiplier)
}
