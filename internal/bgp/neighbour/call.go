// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	"context"
	"net"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/tcp"
)

// Call takes a connection that the passive peer made. It takes the place of the
// session that there may be: a peer that calls anew has lost that one (RFC 4724
// §4.2).
func (n *Neighbour) Call(conn *net.TCPConn) {
	local := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr()
	if n.peer.LocalAddress.IsValid() && local != n.peer.LocalAddress || tcp.SetHops(conn, n.local, &n.peer) != nil {
		conn.Close()
		return
	}
	former := n.current()
	for {
		select {
		case n.calls <- conn:
			if former != nil {
				former.Drop("the peer calls anew")
			}
			return
		case old := <-n.calls:
			old.Close()
		}
	}
}

// Unreadable notes that the passive peer can't call, as its password isn't known.
func (n *Neighbour) Unreadable(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil {
		n.miss(err.Error())
	}
}

// called waits for the passive peer's call.
func (n *Neighbour) called(ctx context.Context) (*net.TCPConn, string) {
	n.waits(bgp.Active)
	select {
	case conn := <-n.calls:
		return conn, ""
	case <-ctx.Done():
		return nil, ""
	}
}
