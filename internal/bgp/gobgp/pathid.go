// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"hash/fnv"
	"net/netip"
	"slices"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// pathIDs gives paths other identifiers towards a router (RFC 7911 §3) than the
// library does, which numbers a prefix's paths as they come: after a restart of
// the reflector they come in another order, and a router that kept them would take
// one client's for another's until all are there. Here the identifier is made of
// what tells paths apart: who announced it, and its next hop.
type pathIDs struct {
	families map[wire.Family]wire.BGPAddPathMode
	// given are the identifiers by the library's, holders how many paths of the
	// library's have one.
	given   map[pathID]given
	holders map[pathID]int
	// rounds counts how often all has been told of a family.
	rounds map[wire.Family]int
}

// given is an identifier, and the round in which its path was told last.
type given struct {
	id    uint32
	round int
}

// pathID is an identifier of a path to a prefix.
type pathID struct {
	prefix netip.Prefix
	id     uint32
}

// newPathIDs returns what a router wants that sent this OPEN; nil if it takes only
// one path of each prefix.
func newPathIDs(open *wire.BGPOpen) *pathIDs {
	ids := &pathIDs{
		families: make(map[wire.Family]wire.BGPAddPathMode), given: make(map[pathID]given), holders: make(map[pathID]int),
		rounds: make(map[wire.Family]int),
	}
	for _, c := range capabilities(open) {
		if c, ok := c.(*wire.CapAddPath); ok {
			for _, t := range c.Tuples {
				if t.Mode&wire.BGP_ADD_PATH_RECEIVE != 0 {
					ids.families[t.Family] = wire.BGP_ADD_PATH_BOTH // so it is parsed and made alike
				}
			}
		}
	}
	if len(ids.families) == 0 {
		return nil
	}
	return ids
}

// translate returns what is to be sent instead of an UPDATE.
func (p *pathIDs) translate(m *wire.BGPMessage, options *wire.MarshallingOption) (messages [][]byte, err error) {
	update := m.Body.(*wire.BGPUpdate)
	stale, empty := p.apply(update)
	if len(stale) > 0 {
		messages, err = withdrawals(stale, options)
	}
	if empty || err != nil {
		return messages, err
	}
	out, err := m.Serialize(options)
	return append(messages, out), err
}

// apply gives the paths of an UPDATE their identifiers. It returns paths that have
// to be withdrawn before, as the library has given their identifiers to others, and
// whether nothing is left to be said.
func (p *pathIDs) apply(update *wire.BGPUpdate) (stale []wire.PathNLRI, empty bool) {
	id := identify(update.PathAttributes)
	withdrew, left := len(update.WithdrawnRoutes) > 0, 0
	if p.families[wire.RF_IPv4_UC] != 0 {
		stale = append(stale, p.announced(update.NLRI, id)...)
		update.WithdrawnRoutes = p.withdrawn(update.WithdrawnRoutes)
	}
	left += len(update.NLRI) + len(update.WithdrawnRoutes)
	update.PathAttributes = slices.DeleteFunc(update.PathAttributes, func(a wire.PathAttributeInterface) bool {
		switch a := a.(type) {
		case *wire.PathAttributeMpReachNLRI:
			if p.families[wire.NewFamily(a.AFI, a.SAFI)] != 0 {
				stale = append(stale, p.announced(a.Value, id)...)
			}
			left += len(a.Value)
		case *wire.PathAttributeMpUnreachNLRI:
			if len(a.Value) == 0 || p.families[wire.NewFamily(a.AFI, a.SAFI)] == 0 {
				left += len(a.Value)
				return false // End-of-RIB is said so
			}
			withdrew = true
			a.Value = p.withdrawn(a.Value)
			left += len(a.Value)
			return len(a.Value) == 0
		}
		return false
	})
	return stale, withdrew && left == 0
}

// announced sets the identifiers of announced paths.
func (p *pathIDs) announced(paths []wire.PathNLRI, id uint32) (stale []wire.PathNLRI) {
	for i := range paths {
		path := &paths[i]
		place := pathID{prefixOf(path.NLRI), path.ID}
		old, had := p.given[place]
		p.given[place] = given{id, p.rounds[familyOf(place.prefix)]}
		if !had || old.id != id {
			p.holders[pathID{place.prefix, id}]++
		}
		if had && old.id != id && p.release(place.prefix, old.id) {
			stale = append(stale, wire.PathNLRI{NLRI: path.NLRI, ID: old.id})
		}
		path.ID = id
	}
	return stale
}

// withdrawn sets the identifiers of withdrawn paths, and leaves out those that
// another path has too.
func (p *pathIDs) withdrawn(paths []wire.PathNLRI) []wire.PathNLRI {
	left := paths[:0]
	for _, path := range paths {
		place := pathID{prefixOf(path.NLRI), path.ID}
		old, had := p.given[place]
		delete(p.given, place)
		if had && p.release(place.prefix, old.id) {
			left = append(left, wire.PathNLRI{NLRI: path.NLRI, ID: old.id})
		}
	}
	return left
}

// sweep ends a round in which all has been told of a family. It returns paths to
// be withdrawn: those that weren't told in it.
func (p *pathIDs) sweep(family wire.Family) (gone []wire.PathNLRI) {
	for place, old := range p.given {
		if familyOf(place.prefix) != family || old.round == p.rounds[family] {
			continue
		}
		delete(p.given, place)
		nlri, err := wire.NewIPAddrPrefix(place.prefix)
		if err == nil && p.release(place.prefix, old.id) {
			gone = append(gone, wire.PathNLRI{NLRI: nlri, ID: old.id})
		}
	}
	p.rounds[family]++
	return gone
}

func (p *pathIDs) release(prefix netip.Prefix, id uint32) (last bool) {
	at := pathID{prefix, id}
	p.holders[at]--
	if p.holders[at] > 0 {
		return false
	}
	delete(p.holders, at)
	return true
}

// identify makes an identifier of the client and the next hop. Towards eBGP
// routers the client isn't told.
func identify(attrs []wire.PathAttributeInterface) uint32 {
	hash := fnv.New32a()
	for _, a := range attrs {
		if a, ok := a.(*wire.PathAttributeOriginatorId); ok {
			hash.Write(a.Value.AsSlice())
		}
	}
	hash.Write(nextHopOf(attrs).AsSlice())
	return hash.Sum32()
}

// withdrawals are messages that withdraw paths.
func withdrawals(paths []wire.PathNLRI, options *wire.MarshallingOption) (messages [][]byte, err error) {
	for _, path := range paths {
		one := []wire.PathNLRI{path}
		m := wire.NewBGPUpdateMessage(one, nil, nil)
		if prefixOf(path.NLRI).Addr().Is6() {
			attr, err := wire.NewPathAttributeMpUnreachNLRI(wire.RF_IPv6_UC, one)
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
