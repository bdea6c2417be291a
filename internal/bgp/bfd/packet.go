// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// state is a session's state as packets have it (RFC 5880 §4.1).
type state uint8

const (
	adminDown state = iota
	down
	initial
	up
)

// public is the exported form of the state.
func (s state) public() bgp.BFDState {
	return [...]bgp.BFDState{bgp.BFDAdminDown, bgp.BFDDown, bgp.BFDInit, bgp.BFDUp}[s]
}

// packet is a control packet (RFC 5880 §4.1).
type packet struct {
	diagnostic Diagnostic
	state      state
	// The P, F and D bits.
	poll, final, demand bool
	// authenticated is set if an authentication section follows, which isn't read.
	authenticated bool
	multiplier    uint8
	// my and your are discriminators; your is 0 if the sender doesn't know it.
	my, your uint32
	// Intervals are whole microseconds, up to 32 bits of them.
	desiredMinTx, requiredMinRx time.Duration
}

// Lengths in bytes: of the mandatory section, and with the smallest authentication
// section (RFC 5880 §6.8.6).
const (
	packetLength        = 24
	authenticatedLength = 26
)

const version = 1

// Bits of the second byte.
const (
	flagMultipoint     = 0x01
	flagDemand         = 0x02
	flagAuthentication = 0x04
	flagFinal          = 0x10
	flagPoll           = 0x20
)

// Reasons to discard a packet, in the order of RFC 5880 §6.8.6.
var (
	errShort         = errors.New("packet is shorter than its header")
	errMultiplier    = errors.New("packet with detection multiplier 0")
	errMultipoint    = errors.New("packet of a multipoint session")
	errMyZero        = errors.New("packet without a discriminator")
	errYourZero      = errors.New("packet of a session that is not down, without our discriminator")
	errUnknown       = errors.New("packet of a session that does not exist")
	errInterface     = errors.New("packet received on another interface than that of the route to the peer (RFC 5881 §3)")
	errUnproven      = errors.New("packet without our discriminator, while the session is up")
	errPassive       = errors.New("packet of a session that has not begun here")
	errAuthenticated = errors.New("packet with authentication, which is not configured")
)

// parse reads a datagram, with the checks of RFC 5880 §6.8.6 that precede the lookup
// of a session.
func parse(b []byte) (packet, error) {
	if len(b) < packetLength {
		return packet{}, errShort
	}
	if v := b[0] >> 5; v != version {
		return packet{}, fmt.Errorf("packet of version %d", v)
	}
	flags, length := b[1]&0x3f, int(b[3])
	authenticated := flags&flagAuthentication != 0
	switch {
	case length < packetLength || authenticated && length < authenticatedLength:
		return packet{}, fmt.Errorf("packet with length %d", length)
	case length > len(b):
		return packet{}, errShort
	case b[2] == 0:
		return packet{}, errMultiplier
	case flags&flagMultipoint != 0:
		return packet{}, errMultipoint
	}
	p := packet{
		diagnostic: Diagnostic(b[0] & 0x1f), state: state(b[1] >> 6), authenticated: authenticated,
		poll: flags&flagPoll != 0, final: flags&flagFinal != 0, demand: flags&flagDemand != 0,
		multiplier: b[2], my: binary.BigEndian.Uint32(b[4:]), your: binary.BigEndian.Uint32(b[8:]),
		desiredMinTx: microseconds(b[12:]), requiredMinRx: microseconds(b[16:]),
	}
	switch {
	case p.my == 0:
		return packet{}, errMyZero
	case p.your == 0 && p.state > down:
		return packet{}, errYourZero
	}
	return p, nil
}

// bytes is the packet as it is sent: without D bit and echo function.
func (p *packet) bytes() [packetLength]byte {
	var b [packetLength]byte
	b[0] = version<<5 | byte(p.diagnostic)&0x1f
	b[1] = byte(p.state) << 6
	if p.poll {
		b[1] |= flagPoll
	}
	if p.final {
		b[1] |= flagFinal
	}
	b[2], b[3] = p.multiplier, packetLength
	binary.BigEndian.PutUint32(b[4:], p.my)
	binary.BigEndian.PutUint32(b[8:], p.your)
	binary.BigEndian.PutUint32(b[12:], uint32(p.desiredMinTx.Microseconds()))
	binary.BigEndian.PutUint32(b[16:], uint32(p.requiredMinRx.Microseconds()))
	return b
}

func microseconds(b []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint32(b)) * time.Microsecond
}
