// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
	"fairlead.io/fairlead/internal/bgp/gobgp"
)

// fall is the end of a BFD session's being up.
type fall struct {
	up, down time.Time
	why      string
}

// Watched hears of changes of the peer's BFD session. One that goes down ends the
// session with the peer; that the peer took it down on purpose says nothing of the
// way to it (RFC 5882 §3.2). A neighbour without BFD may hear what was on its way to
// the one before it, which had the same peer.
func (n *Neighbour) Watched(event bfd.Event) {
	if n.peer.BFD == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if event.New == bgp.BFDUp {
		n.status.watched = event.At
	}
	if event.Old != bgp.BFDUp || event.RemoteAdminDown {
		return
	}
	select {
	case n.falls <- fall{n.status.watched, event.At, event.Diagnostic.String()}:
	default: // the one before is enough
	}
}

// concerns reports whether the fall of BFD is about a session that was established
// at since. With some routers, BFD lives only as long as BGP: what falls then, in
// the first moments of a new session, is what was left of the one before, and to
// end the new one for it would go on for ever.
func (n *Neighbour) concerns(f fall, since time.Time) bool {
	detection := n.peer.BFD.Interval * time.Duration(n.peer.BFD.Multiplier)
	return f.up.After(since) || f.down.Sub(since) >= detection
}

// fell is what the session ends with.
func fell(f fall) gobgp.Notification {
	n := gobgp.BFDDown
	n.Text = f.why
	return n
}
