// SPDX-License-Identifier: Apache-2.0

package session

import (
	"hash/fnv"
	"slices"
	"sync"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// updates follows and rewrites the library's UPDATEs to a peer. For routers of a
// reflector it does two things.
//
// It replaces path identifiers (RFC 7911 §3). The library numbers a prefix's paths in
// the order of their arrival, which differs after a restart of the reflector: a router
// that kept the paths would mistake one client's for another's until it has all. Here
// the identifier is a hash of client and next hop, which distinguish paths.
//
// It also repeats the initial routes. The library loses changes between sending them
// and establishing the session: a route that came then would be missing, and one that
// went would stay. Therefore the first End-of-RIB is dropped, a soft reset has the
// library send all routes again, and those that aren't repeated are withdrawn before
// the second End-of-RIB. The library merges messages that wait to be sent: a reset
// before it has sent the first End-of-RIB would leave only one. It sends one with graceful
// restart only, which the OPEN of every router has when the library gets it.
type updates struct {
	// families are those in which the router accepts several paths to a prefix.
	families map[wire.Family]wire.BGPAddPathMode
	// assigned are the identifiers of announced paths by the library's, users how many
	// paths of the library have one.
	assigned map[path]assigned
	users    map[path]int
	// rounds counts the End-of-RIBs of a family.
	rounds map[wire.Family]int

	// repeat starts the soft reset; nil for peers other than routers. endOfRIB is set if
	// the router gets an End-of-RIB, too.
	repeat   func()
	once     sync.Once
	endOfRIB bool
}

// assigned is an identifier, and the round in which its path was sent last.
type assigned struct {
	id    uint32
	round int
}

func newUpdates() *updates {
	return &updates{assigned: make(map[path]assigned), users: make(map[path]int), rounds: make(map[wire.Family]int)}
}

// negotiate reads the router's OPEN, before the library sends it an UPDATE.
func (u *updates) negotiate(open *wire.BGPOpen, endOfRIB bool) {
	u.endOfRIB = endOfRIB
	u.families = make(map[wire.Family]wire.BGPAddPathMode)
	for _, c := range capabilities(open) {
		if c, ok := c.(*wire.CapAddPath); ok {
			for _, t := range c.Tuples {
				if t.Mode&wire.BGP_ADD_PATH_RECEIVE != 0 {
					u.families[t.Family] = wire.BGP_ADD_PATH_BOTH // both, so that it is parsed and serialised alike
				}
			}
		}
	}
}

// rewrite returns the messages to send instead of an UPDATE.
func (u *updates) rewrite(message []byte, options *wire.MarshallingOption) (out [][]byte, err error) {
	m, err := parse(message, options)
	if err != nil {
		return nil, err
	}
	update := m.Body.(*wire.BGPUpdate)
	if end, family := update.IsEndOfRib(); end {
		if u.repeat == nil {
			return [][]byte{message}, nil
		}
		if out, err = withdrawals(u.sweep(family), options); err != nil {
			return nil, err
		}
		if u.rounds[family] == 1 {
			u.once.Do(func() { go u.repeat() })
			return out, nil
		}
		if u.endOfRIB {
			out = append(out, message)
		}
		return out, nil
	}
	if withdrawn, _ := pathsOf(update); len(withdrawn) > 0 { // the library announces none in the same message
		return withdrawals(u.withdrawn(withdrawn), options)
	}
	announced := update.NLRI
	for _, a := range update.PathAttributes {
		if reach, ok := a.(*wire.PathAttributeMpReachNLRI); ok {
			announced = reach.Value
		}
	}
	reassigned := u.announced(announced, identifierOf(update.PathAttributes))
	if out, err = withdrawals(reassigned, options); err != nil {
		return nil, err
	}
	message, err = m.Serialize(options)
	return append(out, message), err
}

// announced sets the identifiers of announced paths. It returns paths to be withdrawn
// before, whose identifiers the library has reassigned.
func (u *updates) announced(paths []wire.PathNLRI, id uint32) (reassigned []wire.PathNLRI) {
	for i := range paths {
		p := pathOf(paths[i])
		family := familyOf(p.prefix)
		if u.families[family] == 0 {
			id = 0
		}
		old, had := u.assigned[p]
		u.assigned[p] = assigned{id, u.rounds[family]}
		if !had || old.id != id {
			u.users[path{p.prefix, id}]++
		}
		if had && old.id != id && u.release(path{p.prefix, old.id}) {
			reassigned = append(reassigned, wire.PathNLRI{NLRI: paths[i].NLRI, ID: old.id})
		}
		paths[i].ID = id
	}
	return reassigned
}

// withdrawn returns withdrawn paths with their identifiers, without those that another
// path has, too.
func (u *updates) withdrawn(paths []wire.PathNLRI) (left []wire.PathNLRI) {
	for _, n := range paths {
		p := pathOf(n)
		old, had := u.assigned[p]
		delete(u.assigned, p)
		if had && u.release(path{p.prefix, old.id}) {
			left = append(left, wire.PathNLRI{NLRI: n.NLRI, ID: old.id})
		}
	}
	return left
}

// sweep ends a round. It returns the family's paths that were not sent in it.
func (u *updates) sweep(family wire.Family) (stale []wire.PathNLRI) {
	for p, old := range u.assigned {
		if familyOf(p.prefix) != family || old.round == u.rounds[family] {
			continue
		}
		delete(u.assigned, p)
		nlri, err := wire.NewIPAddrPrefix(p.prefix)
		if err == nil && u.release(path{p.prefix, old.id}) {
			stale = append(stale, wire.PathNLRI{NLRI: nlri, ID: old.id})
		}
	}
	u.rounds[family]++
	return stale
}

// release reports whether no path has the identifier any more.
func (u *updates) release(p path) (last bool) {
	u.users[p]--
	if u.users[p] > 0 {
		return false
	}
	delete(u.users, p)
	return true
}

// identifierOf hashes client and next hop. eBGP routers don't get the client.
func identifierOf(attrs []wire.PathAttributeInterface) uint32 {
	hash := fnv.New32a()
	for _, a := range attrs {
		if a, ok := a.(*wire.PathAttributeOriginatorId); ok {
			hash.Write(a.Value.AsSlice())
		}
	}
	hash.Write(nextHopOf(attrs).AsSlice())
	return hash.Sum32()
}

// withdrawals are messages that withdraw paths of one family.
func withdrawals(paths []wire.PathNLRI, options *wire.MarshallingOption) (messages [][]byte, err error) {
	const most = 128 // paths that fit into a message
	for some := range slices.Chunk(paths, most) {
		m := wire.NewBGPUpdateMessage(some, nil, nil)
		if family := familyOf(prefixOf(some[0].NLRI)); family == wire.RF_IPv6_UC {
			attr, err := wire.NewPathAttributeMpUnreachNLRI(family, some)
			if err != nil {
				return nil, err
			}
			m = wire.NewBGPUpdateMessage(nil, []wire.PathAttributeInterface{attr}, nil)
		}
		out, err := m.Serialize(options)
		if err != nil {
			return nil, err
		}
		messages = append(messages, out)
	}
	return messages, nil
}
