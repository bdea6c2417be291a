// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fairlead.io/fairlead/internal/bgp/bfd"
)

// watch updates the peers that BFD watches: routers, and clients with a session. BFD
// distinguishes peers by address only: clients that share one share its session. The
// caller holds the lock.
func (r *Reflector) watch() {
	var watched []bfd.Peer
	for _, router := range r.routers {
		if router.Peer.BFD != nil {
			watched = append(watched, bfd.Of(&router.Peer))
		}
	}
	for _, p := range r.clients {
		if p.BFD != nil && p.established() {
			watched = append(watched, bfd.Of(&p.Peer))
		}
	}
	r.bfd.Set(watched)
	for _, p := range r.clients {
		if p.established() {
			r.bfd.Begin(p.Address)
		}
	}
}

// bfdChanged ends the session with a client that BFD found down.
func (r *Reflector) bfdChanged(e bfd.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if router := r.routers[e.Peer]; router != nil {
		router.BFDChanged(e)
	}
	for _, p := range r.clients {
		if p.Address == e.Peer && p.established() && e.Concerns(p.session.Status().Since, p.BFD) {
			r.drop(p, "BFD down: "+e.Diagnostic.String())
		}
	}
	r.watch()
}
