// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"net/netip"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// sent notes what the peer was told, once it is in the socket.
func (c *conn) sent(kind uint8, message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counters.MessagesSent++
	if kind != wire.BGP_MSG_UPDATE {
		return
	}
	c.counters.UpdatesSent++
	m, err := parse(message, &wire.MarshallingOption{
		Use2ByteAS: c.open != nil && !c.open.longASN, ExtendedMessage: true})
	if err != nil {
		return
	}
	c.tell(m.Body.(*wire.BGPUpdate))
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// tell applies an UPDATE to what the peer has been told.
func (c *conn) tell(update *wire.BGPUpdate) {
	withdrawn, announced := pathsOf(update)
	for _, n := range withdrawn {
		delete(c.told, prefixOf(n.NLRI))
	}
	for _, n := range announced {
		c.told[prefixOf(n.NLRI)] = struct{}{}
	}
}

// pathsOf are the paths of both families of which an UPDATE tells.
func pathsOf(update *wire.BGPUpdate) (withdrawn, announced []wire.PathNLRI) {
	withdrawn, announced = update.WithdrawnRoutes, update.NLRI
	for _, a := range update.PathAttributes {
		switch a := a.(type) {
		case *wire.PathAttributeMpUnreachNLRI:
			withdrawn = append(withdrawn, a.Value...)
		case *wire.PathAttributeMpReachNLRI:
			announced = append(announced, a.Value...)
		}
	}
	return withdrawn, announced
}

// prefixOf is the prefix of a unicast route; no others are sent.
func prefixOf(nlri wire.NLRI) netip.Prefix {
	if p, ok := nlri.(*wire.IPAddrPrefix); ok {
		return p.Prefix
	}
	return netip.Prefix{}
}
