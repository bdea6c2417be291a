// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
)

// survey finds out how BFD is to watch the peer, by the way that leads there now.
func (p *peer) survey() {
	if p.BFD != nil {
		p.watched = bfd.Of(&p.Peer)
	}
}

// watch has BFD watch those who are established, and routers always. BFD knows
// addresses only: clients of the same one are watched together.
func (r *Reflector) watch() {
	var wanted []bfd.Peer
	seen := make(map[netip.Addr]bool)
	for _, p := range r.peers {
		if p.BFD == nil || !p.router && p.state != bgp.Established || seen[p.Address] {
			continue
		}
		seen[p.Address] = true
		wanted = append(wanted, p.watched)
	}
	if err := r.watcher.Set(wanted); err != nil {
		r.log.Error("peers not watched by BFD", "error", err)
	}
	for _, p := range r.peers {
		if p.state == bgp.Established {
			r.watcher.Begin(p.Address)
		}
	}
}

// watched ends the session with a peer that BFD found dead, if BFD was up in that
// session: there are peers whose BFD lives only as long as BGP. A peer that takes
// BFD down on purpose isn't dead (RFC 5882 §3.2).
func (r *Reflector) watched(e bfd.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.peers {
		if p.Address != e.Peer || p.BFD == nil || p.state != bgp.Established {
			continue
		}
		switch {
		case e.New == bgp.BFDUp:
			p.alive = true
		case e.Old == bgp.BFDUp && e.New == bgp.BFDDown && !e.RemoteAdminDown && p.seenAlive(e.At):
			r.drop(p, "BFD down: "+e.Diagnostic.String())
		}
	}
	r.watch()
}

// seenAlive reports whether BFD was up in the session: it came up in it, or the
// session has lived for so long that it would have ended without.
func (p *peer) seenAlive(now time.Time) bool {
	return p.alive || now.Sub(p.since) > p.BFD.Interval*time.Duration(p.BFD.Multiplier)
}
