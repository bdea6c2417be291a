// SPDX-License-Identifier: Apache-2.0

package session

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/wait"
)

// adjRIBOut has the paths that a peer is to have, and those that it was sent (RFC 4271 §3.2).
type adjRIBOut struct {
	// changed has a value if there is something to write, closed is closed when the session has ended.
	changed, closed chan struct{}
	state           wait.Value[outState]

	mu           sync.Mutex
	wanted, sent map[netip.Prefix][]encoded
	paths        int // in sent
	// unequal are the prefixes in which they may differ.
	unequal map[netip.Prefix]struct{}
	// begun is set when the first paths were taken. refreshed is when the peer last got all again, wanting the
	// families that it has asked for since.
	begun     bool
	refreshed time.Time
	wanting   Families
}

// outState is how many paths the peer has, and whether these are the wanted ones.
type outState struct {
	paths   int
	current bool
}

// encoded is a path to a prefix: its identifier (RFC 7911), and the attributes as they are in a message but for the next
// hop of MP_REACH_NLRI (RFC 4760 §3), which is the zero Addr if NEXT_HOP is among them.
type encoded struct {
	id uint32
	attributes
}

type attributes struct {
	bytes string
	hop   netip.Addr
}

func newAdjRIBOut() *adjRIBOut {
	r := &adjRIBOut{
		changed: make(chan struct{}, 1), closed: make(chan struct{}),
		wanted: make(map[netip.Prefix][]encoded), sent: make(map[netip.Prefix][]encoded), unequal: make(map[netip.Prefix]struct{}),
	}
	r.state.Set(outState{current: true})
	r.signal() // End-of-RIB is sent also without paths
	return r
}

// signal wakes the writer.
func (r *adjRIBOut) signal() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// replace makes paths all that the peer is to have.
func (r *adjRIBOut) replace(paths map[netip.Prefix][]encoded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for prefix := range r.wanted {
		if _, ok := paths[prefix]; !ok {
			r.set(prefix, nil)
		}
	}
	for prefix, to := range paths {
		r.set(prefix, to)
	}
}

// change makes paths, by increasing identifiers, all that the peer is to have to a prefix.
func (r *adjRIBOut) change(prefix netip.Prefix, paths []encoded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(prefix, paths)
}

func (r *adjRIBOut) set(prefix netip.Prefix, paths []encoded) {
	if slices.Equal(r.wanted[prefix], paths) {
		return
	}
	if r.wanted[prefix] = paths; len(paths) == 0 {
		delete(r.wanted, prefix)
	}
	r.unequal[prefix] = struct{}{}
	r.state.Modify(func(s *outState) { s.current = false })
	r.signal()
}

// refresh has the paths of a family sent again (RFC 2918 §4). Requests that come faster than they are answered get one
// answer.
func (r *adjRIBOut) refresh(family wire.Family) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.wanting != Families{}
	r.wanting.add(family)
	if !waiting && r.wanting != (Families{}) { // others are ignored
		time.AfterFunc(time.Until(r.refreshed.Add(refreshInterval)), r.repeat)
	}
}

// repeat forgets that the paths of the families that the peer wants again were sent.
func (r *adjRIBOut) repeat() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for prefix := range r.wanted {
		if r.wanting.Has(prefix.Addr()) {
			for i := range r.sent[prefix] {
				r.sent[prefix][i].bytes = "" // which no path has
			}
			r.unequal[prefix] = struct{}{}
		}
	}
	r.refreshed, r.wanting = time.Now(), Families{}
	r.signal()
}

// take returns the messages that give the peer the wanted paths: withdrawals first, and after the first paths
// End-of-RIB (RFC 4724 §2).
func (r *adjRIBOut) take(to *negotiated) (messages [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	type group struct {
		attributes
		six bool
	}
	withdrawn, announced := make(map[bool][][]byte), make(map[group][][]byte)
	for prefix := range r.unequal {
		wanted, sent, six := r.wanted[prefix], r.sent[prefix], prefix.Addr().Is6()
		for _, p := range sent {
			if !slices.ContainsFunc(wanted, func(w encoded) bool { return w.id == p.id }) {
				withdrawn[six] = append(withdrawn[six], to.nlri(prefix, p.id))
			}
		}
		for _, p := range wanted {
			if !slices.Contains(sent, p) {
				g := group{p.attributes, six}
				announced[g] = append(announced[g], to.nlri(prefix, p.id))
			}
		}
		r.paths += len(wanted) - len(sent)
		if r.sent[prefix] = slices.Clone(wanted); len(wanted) == 0 {
			delete(r.sent, prefix)
		}
	}
	clear(r.unequal)
	for six, nlris := range withdrawn {
		messages = append(messages, updates(nlris, func(some []byte) []byte { return withdrawal(six, some) })...)
	}
	for g, nlris := range announced {
		messages = append(messages, updates(nlris, func(some []byte) []byte { return g.announcement(g.six, some) })...)
	}
	if !r.begun && to.gracefulRestart {
		for _, six := range []bool{false, true} {
			if six && to.accepts.IPv6 || !six && to.accepts.IPv4 {
				messages = append(messages, withdrawal(six, nil))
			}
		}
	}
	r.begun = true
	return messages
}

// written notes that all messages of the last take are written.
func (r *adjRIBOut) written() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Set(outState{paths: r.paths, current: len(r.unequal) == 0})
}

// updates are the fewest messages with all the NLRI.
func updates(nlris [][]byte, message func(some []byte) []byte) (messages [][]byte) {
	room := wire.BGP_MAX_MESSAGE_LENGTH - len(message(nil))
	var some []byte
	for i, n := range nlris {
		some = append(some, n...)
		if i == len(nlris)-1 || len(some)+len(nlris[i+1]) > room {
			messages, some = append(messages, message(some)), nil
		}
	}
	return messages
}

// The attributes that have NLRI (RFC 4760 §3, §4).
const (
	mpReach   = byte(wire.BGP_ATTR_TYPE_MP_REACH_NLRI)
	mpUnreach = byte(wire.BGP_ATTR_TYPE_MP_UNREACH_NLRI)
)

// withdrawal is an UPDATE that withdraws paths of one family; without any it is its End-of-RIB.
func withdrawal(six bool, nlri []byte) []byte {
	if six {
		return update(nil, multiprotocol(mpUnreach, family(six), nlri), nil)
	}
	return update(nlri, nil, nil)
}

// announcement is an UPDATE that announces paths of one family.
func (a attributes) announcement(six bool, nlri []byte) []byte {
	if !a.hop.IsValid() {
		return update(nil, []byte(a.bytes), nlri)
	}
	hop := a.hop.AsSlice()
	before := slices.Concat(family(six), []byte{byte(len(hop))}, hop, []byte{0})
	return update(nil, append(multiprotocol(mpReach, before, nlri), a.bytes...), nil) // first in the list (RFC 7606 §5.1)
}

// family is the address family of unicast routes.
func family(six bool) []byte {
	if six {
		return []byte{0, byte(wire.AFI_IP6), wire.SAFI_UNICAST}
	}
	return []byte{0, byte(wire.AFI_IP), wire.SAFI_UNICAST}
}

// multiprotocol is an optional attribute with a length of 16 bits.
func multiprotocol(kind byte, before, nlri []byte) []byte {
	attribute := binary.BigEndian.AppendUint16([]byte{0x90, kind}, uint16(len(before)+len(nlri)))
	return append(append(attribute, before...), nlri...)
}

// update is an UPDATE (RFC 4271 §4.3).
func update(withdrawn, attributes, nlri []byte) []byte {
	size := headerSize + 4 + len(withdrawn) + len(attributes) + len(nlri)
	m := binary.BigEndian.AppendUint16(append(make([]byte, 0, size), marker...), uint16(size))
	m = binary.BigEndian.AppendUint16(append(m, wire.BGP_MSG_UPDATE), uint16(len(withdrawn)))
	m = binary.BigEndian.AppendUint16(append(m, withdrawn...), uint16(len(attributes)))
	return append(append(m, attributes...), nlri...)
}
