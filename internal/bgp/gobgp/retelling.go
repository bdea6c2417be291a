// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"context"
	"net/netip"
	"sync"

	"github.com/osrg/gobgp/v4/api"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// retelling has a router told everything a second time. In the moment in which a
// session becomes established the library has told what there is, and doesn't tell
// yet what changes: a route that came then would be missing, and one that went
// would stay. So the first End-of-RIB is held back, all is told again, and what
// isn't repeated then is withdrawn before the second one.
//
// The library puts together what waits to be sent: if all were told again before the
// first End-of-RIB has left it, there would be one for both.
type retelling struct {
	// begin has the library tell all again; nil for who is told nothing.
	begin func()
	// ends says that the router is sent End-of-RIBs.
	ends bool
	// alive says that a KEEPALIVE has come, with which a session is established.
	alive bool
	once  sync.Once
	// held has the families whose first End-of-RIB was held back.
	held map[wire.Family]bool
}

// keptAlive notes that the peer has sent a KEEPALIVE.
func (r *retelling) keptAlive() { r.alive = true }

// reading notes that the library reads another message: after the first KEEPALIVE
// it does so when it tells what changes.
func (r *retelling) reading() {
	if r.alive && !r.ends {
		r.again()
	}
}

// first reports whether an End-of-RIB is the first one of its family. The library
// sends it when it tells what changes.
func (r *retelling) first(family wire.Family) bool {
	if r.held[family] {
		return false
	}
	if r.held == nil {
		r.held = make(map[wire.Family]bool)
	}
	r.held[family] = true
	r.again()
	return true
}

// again has all told a second time, once.
func (r *retelling) again() {
	if r.begin != nil {
		r.once.Do(func() { go r.begin() })
	}
}

// retell has a router told all again. A router that is gone by then needs nothing.
func (s *Server) retell(router netip.Addr) {
	_ = s.bgp.ResetPeer(context.Background(), &api.ResetPeerRequest{
		Address: router.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT,
	})
}

// update returns what a router is sent instead of the library's UPDATE.
func (l *Link) update(message []byte) ([][]byte, error) {
	options := &wire.MarshallingOption{ExtendedMessage: true}
	if l.paths != nil {
		options.AddPath = l.paths.families
	}
	m, err := parse(message, options)
	if err != nil {
		return nil, err
	}
	update := m.Body.(*wire.BGPUpdate)
	family, end := endOfRIB(update)
	switch {
	case !end && l.paths == nil:
		return [][]byte{message}, nil
	case !end:
		return l.paths.translate(m, options)
	}
	var out [][]byte
	if l.paths != nil {
		if out, err = withdrawals(l.paths.sweep(family), options); err != nil {
			return nil, err
		}
	}
	if l.retold.first(family) {
		return out, nil
	}
	return append(out, message), nil
}

// endOfRIB reports whether an UPDATE says that all has been told of a family
// (RFC 4724 §2).
func endOfRIB(update *wire.BGPUpdate) (family wire.Family, is bool) {
	if len(update.WithdrawnRoutes)+len(update.NLRI) > 0 {
		return 0, false
	}
	switch len(update.PathAttributes) {
	case 0:
		return wire.RF_IPv4_UC, true
	case 1:
		a, ok := update.PathAttributes[0].(*wire.PathAttributeMpUnreachNLRI)
		if ok && len(a.Value) == 0 {
			return wire.NewFamily(a.AFI, a.SAFI), true
		}
	}
	return 0, false
}
